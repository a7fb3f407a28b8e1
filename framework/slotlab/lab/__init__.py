"""From a command line to results: plugins, configuration, runs, sweeps."""

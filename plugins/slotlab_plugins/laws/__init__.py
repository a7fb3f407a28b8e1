"""What synthetic workloads are made of: when requests come, how long they are, who sends them, what they share."""

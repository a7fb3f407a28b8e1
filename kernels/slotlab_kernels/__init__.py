"""The paged, continuous-batching model runner: tensors and block tables. It knows no request, no scheduler, no policy.

Without torch, so cheap to import: `shape` (LlamaShape), `checkpoint` (read_shape, find_smollm2), `tokenizer`.
With torch: `device`, `ops` (choose_ops), `weights` (random_llama), `folder` (load_folder), `gguf_weights` (load_gguf),
`llama` (the forward pass), `hf_model` (that of transformers), `kv_cache`, `batch` (Row, Batch), `sampling`, `staging` (what
goes to the device, and what stays there), `graphs` (CUDA graphs of decodes), `memory` (how many blocks fit),
`deterministic`, `runner` (ModelRunner). `python -m slotlab_kernels.aot` compiles the Triton kernels for GPUs that need not
be there.
"""

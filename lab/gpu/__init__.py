"""leftoff and llama-server on one GPU: decode rates, cold prompts, resumes, restarts, workloads and exactness."""

"""What is sampled beside the work: GPUs through NVML, host and process tree through psutil."""

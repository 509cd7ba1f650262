"""Recording of traces: torch.profiler in this process, nsys around another one."""

"""Reads profiler traces of any kind and says what limits the GPU: pure, no torch, no network.

`analyse_file(path)` gives a `TraceReport`; `compare(before, after)` judges a change;
`scrub_file(source, target)` writes a copy without secrets; `analyse_upload(path)` does the work in
a child process with limits, for files that nobody vouches for.
"""

"""API names: suffixes, drivers and AMD spellings land in one group."""

from __future__ import annotations

import pytest

from gpuagent.traces.api_names import clean, group_of


@pytest.mark.parametrize(
    ("name", "cleaned", "group"),
    [
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel", "launch"),
        ("cudaLaunchKernelExC_v11060", "cudaLaunchKernelExC", "launch"),
        ("cuLaunchKernelEx", "cuLaunchKernelEx", "launch"),
        ("hipExtModuleLaunchKernel", "hipExtModuleLaunchKernel", "launch"),
        ("cudaGraphLaunch_v10000_ptsz", "cudaGraphLaunch", "graph_launch"),
        ("hipGraphLaunch", "hipGraphLaunch", "graph_launch"),
        ("cudaStreamSynchronize_v3020", "cudaStreamSynchronize", "sync"),
        ("cuCtxSynchronize", "cuCtxSynchronize", "sync"),
        ("cudaStreamWaitEvent", "cudaStreamWaitEvent", "other"),
        ("cudaMemcpyAsync_v3020", "cudaMemcpyAsync", "memcpy"),
        ("cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync", "memcpy"),
        ("cudaMemcpy", "cudaMemcpy", "memcpy_sync"),
        ("hipMemcpyWithStream", "hipMemcpyWithStream", "memcpy_sync"),
        ("cudaMemsetAsync", "cudaMemsetAsync", "memset"),
        ("cudaMalloc_v3020", "cudaMalloc", "alloc"),
        ("cudaHostAlloc", "cudaHostAlloc", "alloc"),
        ("cuMemCreate", "cuMemCreate", "alloc"),
        ("cuModuleLoadData", "cuModuleLoadData", "module"),
        ("cudaStreamBeginCapture", "cudaStreamBeginCapture", "capture"),
        ("cudaEventQuery", "cudaEventQuery", "other"),
        ("pthread_mutex_lock", "pthread_mutex_lock", "other"),
    ],
)
def test_calls_are_grouped_by_what_they_do(name: str, cleaned: str, group: str) -> None:
    assert clean(name) == cleaned
    assert group_of(name) == group

"""Memory that PyTorch frees stays in the process, ready for the next operation.

The C library gives large blocks back to the system when they are freed, and the system clears every
page of a block that is requested again. With images this can take longer than reading a minibatch.
Threads other than the main one have heaps that are given back even more often.
"""

import ctypes

# Parameters of mallopt in glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGEST_BLOCK = 2**25  # larger blocks always come from the system; the most that glibc accepts
_NEVER = 2**31 - 1


def keep_freed_memory() -> None:
    """Let the C library keep freed blocks, and use one heap for all threads; glibc only."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK)
        mallopt(_TRIM_THRESHOLD, _NEVER)
        mallopt(_ARENA_MAX, 1)

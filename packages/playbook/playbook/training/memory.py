"""Whether an error means out of memory."""

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "ALLOC_FAILED")  # torch has several ways to say so


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means out of memory, on any device."""
    return isinstance(error, RuntimeError) and any(words in str(error) for words in OUT_OF_MEMORY)

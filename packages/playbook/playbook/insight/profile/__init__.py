"""Where the time and the memory of a training step go, and which remedies help: what the verb `profile` measures."""

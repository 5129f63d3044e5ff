"""Evidence from runs of a program: dependences between tensors, copies in data, causes of errors."""

"""Hand-written gradients and optimizer steps, where autograd or PyTorch's own step is too slow.

They are in separate files, so that the file of a method reads like its paper.
"""

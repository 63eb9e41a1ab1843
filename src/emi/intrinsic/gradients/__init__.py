"""Hand-written gradients and optimizer steps, where autograd or PyTorch's own step is too slow.

They stand apart so that a method's file reads like its paper.
"""

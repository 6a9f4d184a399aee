"""Small networks run fastest on one thread, and the same on every machine."""

import torch

torch.set_num_threads(1)

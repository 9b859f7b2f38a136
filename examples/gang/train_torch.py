"""A gang in torch: data-parallel linear regression, with NCCL where there are GPUs and Gloo where
there are none.

Each task is one process, or `torchrun` starts one for each GPU of its host; either way RANK,
WORLD_SIZE and the rest are set.
"""

import os

import torch
from torch import distributed, nn

has_gpu = torch.cuda.is_available()
device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if has_gpu else "cpu")
distributed.init_process_group("nccl" if has_gpu else "gloo")
rank, size = distributed.get_rank(), distributed.get_world_size()

torch.manual_seed(rank)
x = torch.randn(64, 3, device=device)
y = x @ torch.tensor([1.0, -2.0, 0.5], device=device)
model = nn.parallel.DistributedDataParallel(nn.Linear(3, 1, bias=False).to(device))
optimiser = torch.optim.SGD(model.parameters(), lr=0.3)
for _ in range(100):
    optimiser.zero_grad()
    nn.functional.mse_loss(model(x).squeeze(1), y).backward()  # averages the gradients of all ranks
    optimiser.step()
if rank == 0:
    print(
        f"{size} processes on {device.type}: weights {[round(w, 3) for w in model.module.weight[0].tolist()]}"
    )
distributed.destroy_process_group()

"""The network of all systems that use PyTorch, equal to seedzero's `nature` torso of 16 channels and its two heads.

Three convolutions of 16 channels, their padding as JAX's SAME, a hidden layer, logits, and a value.
"""

from __future__ import annotations

import torch
from torch import nn

CHANNELS = 16
NUM_FEATURES = CHANNELS * 11 * 11


def convolutions() -> nn.Sequential:
    """Returns the convolutions: frames [B, 4, 84, 84], 0 to 1, to features [B, 1936]."""
    return nn.Sequential(
        nn.Conv2d(4, CHANNELS, 8, stride=4, padding=2),
        nn.ReLU(),
        nn.Conv2d(CHANNELS, CHANNELS, 4, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
    )


def torso(width: int) -> nn.Sequential:
    """Returns convolutions and a hidden layer: frames [B, 4, 84, 84], 0 to 1, to features [B, width]."""
    return nn.Sequential(convolutions(), nn.Linear(NUM_FEATURES, width), nn.ReLU())


class Policy(nn.Module):
    """Maps frames [..., 4, 84, 84] uint8 to sampled actions [...] int64 and values [..., 1]."""

    def __init__(self, width: int, num_actions: int) -> None:
        super().__init__()
        self.torso = torso(width)
        self.logits = nn.Linear(width, num_actions)
        self.value = nn.Linear(width, 1)

    def forward(self, frames: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.torso(frames.reshape(-1, *frames.shape[-3:]).float().mul_(1 / 255))
        action = torch.distributions.Categorical(logits=self.logits(x), validate_args=False).sample()
        return action.reshape(frames.shape[:-3]), self.value(x).reshape(*frames.shape[:-3], 1)

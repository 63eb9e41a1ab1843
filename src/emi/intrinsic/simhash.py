"""SimHash: reward states whose hash code was rarely counted.

A random projection maps a state to k signs, so that similar states share a code. Codes are counted.
AE-SimHash hashes the binary code of an autoencoder, so that states of similar content share a code.

Tang, Houthooft, Foote, Stooke, Chen, Duan, Schulman, De Turck, Abbeel: #Exploration: A Study of
Count-Based Exploration for Deep Reinforcement Learning, NIPS 2017. Equation numbers are of that
paper; "authors" is their code in the rllab sandbox.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn

from emi.batch import Batched, Transitions, in_pieces, pieces
from emi.images import is_image
from emi.intrinsic.autoencoder import ImageAutoencoder, VectorAutoencoder, binary_penalty
from emi.intrinsic.contract import IntrinsicReward
from emi.intrinsic.descent import Descent
from emi.intrinsic.pool import Pool
from emi.intrinsic.reading import Reading
from emi.nets import Flat, newest_entries
from emi.settings import NotNegativeFloat, PositiveFloat, PositiveInt
from emi.spaces import require_box
from emi.stored_state import expect_tensor


@dataclass(frozen=True)
class SimHashConfig:
    """Settings of `emi.SimHash`."""

    key_bits: PositiveInt = 32
    """k, signs in a hash code (authors' scripts: 32, 128, 256 tried for vectors; 32, 64, 512 with
    the autoencoder; paper, on pixels: several, with β = 0.01 · 256/k)"""
    autoencoder: bool = False
    """AE-SimHash: hash the code of an autoencoder instead of the observation"""
    ae_code: PositiveInt = 512
    """K, units of the code for images (authors' scripts: 448, 512, 800)"""
    ae_hidden: PositiveInt = 1024
    """units of the layers before and after the code (authors' scripts)"""
    ae_filters: PositiveInt = 32
    """filters of each convolution (authors' scripts: 96 or 64; ours: a ninth of the cost)"""
    ae_vector_code: PositiveInt = 16
    """K for vectors (ours: the original has images only; 2¹⁶ codes)"""
    ae_vector_hidden: tuple[PositiveInt, ...] = (64,)
    """hidden layers before and after the code for vectors, tanh (ours)"""
    ae_lambda: NotNegativeFloat = 10 / 32
    """λ, weight of the binary penalty (authors' scripts: 10 or 0.1, with a likelihood summed over
    32 images; here the likelihood is a mean)"""
    ae_learning_rate: PositiveFloat = 3e-4
    """Adam step size (authors' code)"""
    ae_minibatch: PositiveInt = 32
    """observations per gradient step (authors' code)"""
    ae_every: PositiveInt = 5
    """batches from one training to the next (authors' scripts: 3 or 5)"""
    ae_updates: PositiveInt = 600
    """maximum number of gradient steps per training (ours, to bound its time; authors: no limit)"""
    ae_pool: PositiveInt = 100_000
    """number of newest observations to train on (authors: 5 million; ours: 270 MB at 52×52)"""


PRIMES = (999931, 999953, 999959, 999961, 999979, 999983)  # sizes of the tables (authors' code)
MOST = torch.iinfo(torch.int32).max
NOISE = 0.3  # the input of the decoder is b + U(−0.3, 0.3) (authors' code)
BLOCK = 100  # gradient steps between two checks of the loss (authors' code)
PATIENCE = 5  # training stops after this many blocks without progress (authors' code)
PROGRESS = 1e-4  # smallest improvement on the best block so far (authors' code)


def simhash(g: Tensor, A: Tensor) -> Tensor:
    """sgn(A g(s)), equation 2, as booleans; [n, D], [k, D] to [n, k]. Zero counts as +1.

    In float64, so that no sign depends on how the matrix product is evaluated.
    """
    return g.to(torch.float64) @ A.T >= 0


def bonus(count: Tensor) -> Tensor:
    """1 / √n, equation 1 without β; a count of 0 is treated as 1; [n] to [n]."""
    return count.clamp(min=1).to(torch.float32).rsqrt()


class Counts(nn.Module):
    """Counts of k-bit codes: the minimum over six hash tables.

    The slot of a code is the code as a binary number, modulo the prime of the table. The count is
    never too low, and too high only if all six slots are shared with other codes (count-min). The
    tables take 24 MB, whatever the length of the run. A slot saturates at 2³¹ − 1.
    """

    tables: Tensor  # [6, slots]
    powers: Tensor  # [k, 6]: 2ⁱ modulo each prime
    primes: Tensor  # [6]
    first: Tensor  # [6]: offset of each table in the flattened tables

    def __init__(self, bits: int) -> None:
        super().__init__()
        size = max(PRIMES)
        powers = [[pow(2, i, p) for p in PRIMES] for i in range(bits)]
        self.register_buffer("tables", torch.zeros(len(PRIMES), size, dtype=torch.int32))
        # float64 represents these sums exactly, and has a matrix product on every device.
        for name, value in (
            ("powers", torch.tensor(powers, dtype=torch.float64)),
            ("primes", torch.tensor(PRIMES)),
            ("first", torch.arange(len(PRIMES)) * size),
        ):
            self.register_buffer(name, value, persistent=False)

    def slots(self, code: Tensor) -> Tensor:
        """[n, k] booleans to [n, 6] indices in the flattened tables."""
        return (code.to(torch.float64) @ self.powers).long() % self.primes + self.first

    def of(self, slots: Tensor) -> Tensor:
        """The counts of [n, 6] slots, [n]."""
        return self.tables.view(-1)[slots].amin(1)

    def add(self, slots: Tensor) -> None:
        """Count [n, 6] slots; rows with the same code count one by one."""
        flat, places = self.tables.view(-1), slots.view(-1)
        flat.index_add_(0, places, torch.ones_like(places, dtype=torch.int32))
        now = flat[places]
        flat[places] = torch.where(now < 0, MOST, now)  # int32 overflows to negative numbers

    def _check_stored(self, state: Mapping[str, Any], place: str) -> None:
        own = self.tables
        expect_tensor(state["tables"], own.shape, own.dtype, f"{place}.tables", low=0)

    def occupied(self) -> float:
        """Share of the slots of the first table that are in use."""
        return self.tables[0].count_nonzero().item() / PRIMES[0]


def autoencoder(
    space: gymnasium.Space, config: SimHashConfig, rng: torch.Generator
) -> ImageAutoencoder | VectorAutoencoder:
    box = require_box(space)
    if is_image(box):
        return ImageAutoencoder(box, config.ae_filters, config.ae_hidden, config.ae_code, rng)
    size = math.prod(box.shape)
    return VectorAutoencoder(size, config.ae_vector_hidden, config.ae_vector_code, rng)


class SimHash(IntrinsicReward):
    """The projection A, the counts and, for AE-SimHash, the autoencoder and its pool.

    Actions are not used. Scalars of `learn`: `simhash/new_codes` (share of rows whose code was not
    counted before) and `simhash/occupied` (share of the slots of the first table in use; near 1 the
    counts are meaningless). With the autoencoder, of its last training: `simhash/ae_loss` (−log p
    per pixel; for vectors the squared error per scaled entry) and `simhash/ae_penalty` (squared
    distance of the code from 0 or 1, at most 1/4, without λ), both means over the last block of
    gradient steps, and `simhash/ae_updates` (number of gradient steps).
    """

    learns_first = True  # counts include the batch being scored: n ≥ 1 (paper, algorithm 1)
    A: Tensor  # [k, D]
    batches: Tensor  # [], number of batches so far
    last: Tensor  # [3], the scalars of the last training

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: SimHashConfig = SimHashConfig(),  # noqa: B008 - frozen
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.config = config
        rng = torch.Generator().manual_seed(seed)
        self.reading = Reading(observation_space)
        space = self.reading.space
        self.counts = Counts(config.key_bits)
        if config.autoencoder:
            self.net = autoencoder(space, config, rng)
            self.pool = Pool(config.ae_pool, *self.net.row)
            self.descent = Descent(self.net.parameters(), config.ae_learning_rate, rng)
            self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
            self.register_buffer("last", torch.zeros(3, dtype=torch.float64))
            width = self.net.code
        else:
            entries, shape = newest_entries(space)
            self.flat = nn.Sequential(entries, Flat())
            width = math.prod(shape)
        A = torch.randn(config.key_bits, width, generator=rng, dtype=torch.float64)
        self.register_buffer("A", A)

    def g(self, obs: Tensor) -> Tensor:
        """The input of the hash: the observation, or the code as ±1; [n, ...] to [n, D]."""
        if not self.config.autoencoder:
            return self.flat(obs)
        self.net.eval()  # batch norm with running moments: a code depends on its row alone
        return (self.net.encode(self.net.rows(obs)) >= 0.5) * 2 - 1

    def code(self, obs: Batched) -> Tensor:
        """Hash codes as booleans, of observations as `reading` returns them; [n, …] to [n, k]."""
        return in_pieces(lambda s: simhash(self.g(s), self.A), self.device, obs)

    def reward(self, batch: Transitions) -> Tensor:
        batch = self.reading(batch)
        return bonus(self.counts.of(self.counts.slots(self.code(batch.obs))))

    @torch.enable_grad()
    def learn(self, batch: Transitions) -> dict[str, float]:
        batch = self.reading(batch)
        scalars = self._autoencode(batch.obs) if self.config.autoencoder else {}
        slots = self.counts.slots(self.code(batch.obs))
        new = self.counts.of(slots) == 0
        self.counts.add(slots)
        return {
            "simhash/new_codes": new.to(torch.float64).mean().item(),
            "simhash/occupied": self.counts.occupied(),
            **scalars,
        }

    def _autoencode(self, obs: Batched) -> dict[str, float]:
        """Store the observations, train every `ae_every` batches, and return the scalars."""
        for (part,) in pieces(obs, device=self.device):
            self.pool.add(self.net.rows(part))
        if self.batches % self.config.ae_every == 0:
            self.last.copy_(torch.tensor(self._train(), dtype=torch.float64))
        self.batches += 1
        names = ("simhash/ae_loss", "simhash/ae_penalty", "simhash/ae_updates")
        return dict(zip(names, self.last.tolist(), strict=True))

    def _train(self) -> tuple[float, float, int]:
        """Minimise −log p(s | b + noise) + λ · penalty(b), the paper's loss; return the scalars.

        Training stops after five blocks in a row without progress, or after `ae_updates` steps.
        """
        config, rng, size = self.config, self.descent.generator, self.config.ae_minibatch
        self.net.adapt(self.pool.rows)
        self.net.train(size > 1)  # batch norm needs more than one row
        best, stale, updates = math.inf, 0, 0
        while updates < config.ae_updates and stale < PATIENCE:
            steps = min(BLOCK, config.ae_updates - updates)
            rows = self.pool.draw(steps * size, rng).to(self.device)
            shape = len(rows), self.net.code
            noise = torch.rand(shape, generator=rng, dtype=torch.float32).sub_(0.5).mul_(2 * NOISE)
            sums = torch.zeros(2, dtype=torch.float32, device=self.device)
            for s, epsilon in zip(rows.split(size), noise.to(rows.device).split(size), strict=True):
                b = self.net.encode(s)
                loss, penalty = self.net.loss(b + epsilon, s), binary_penalty(b)
                self.descent.step(loss + config.ae_lambda * penalty)
                sums += torch.stack([loss, penalty]).detach()
            updates += steps
            loss_mean, penalty_mean = (sums / steps).tolist()
            total = loss_mean + config.ae_lambda * penalty_mean
            if best - total < PROGRESS:
                stale += 1
            else:
                best, stale = total, 0
        return loss_mean, penalty_mean, updates

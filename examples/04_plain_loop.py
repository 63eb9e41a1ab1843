"""PPO in a hundred lines; the intrinsic reward takes three of them, marked below.

python examples/04_plain_loop.py                  # half a minute
python examples/04_plain_loop.py --steps 300000   # until the car reaches the flag
python examples/04_plain_loop.py --eta 0          # without the bonus
"""

import argparse

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import nn
from torch.distributions import Normal

import emi

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=16_384)
parser.add_argument("--eta", type=float, default=1.0)
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

NUM_ENVS, LENGTH, DISCOUNT, LAMBDA = 8, 512, 0.99, 0.95
EPOCHS, MINIBATCH, CLIP, LEARNING_RATE = 10, 256, 0.2, 3e-4

torch.manual_seed(options.seed)
torch.set_num_threads(1)  # the networks are small
envs = gymnasium.make_vec(
    "MountainCarContinuous-v0",
    num_envs=NUM_ENVS,
    vectorization_mode="sync",
    vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
)
obs_size = envs.single_observation_space.shape[0]
action_size = envs.single_action_space.shape[0]


def net(outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(obs_size, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)
    )


actor, critic, log_std = net(action_size), net(1), nn.Parameter(torch.zeros(action_size))
weights = [*actor.parameters(), *critic.parameters(), log_std]
optimizer = torch.optim.Adam(weights, lr=LEARNING_RATE)
scale = torch.tensor([1.0, 15.0])  # scales position and speed to about one


def policy(obs: torch.Tensor) -> Normal:
    return Normal(actor(obs * scale), log_std.exp())


def value(obs: torch.Tensor) -> torch.Tensor:
    return critic(obs * scale)[..., 0]


# --- intrinsic reward, 1 of 3: a method for these spaces
bonus = emi.RND(envs.single_observation_space, envs.single_action_space, seed=options.seed)

obs, _ = envs.reset(seed=options.seed)
finished: list[float] = []
running = np.zeros(NUM_ENVS)
for iteration in range(max(1, options.steps // (NUM_ENVS * LENGTH))):
    # Collect [time, env, ...], with the true successor also where an episode ended.
    seen, seen_next, actions, rewards, ends, stops = [], [], [], [], [], []
    for _ in range(LENGTH):
        with torch.no_grad():
            action = policy(torch.as_tensor(obs)).sample()
        clipped = action.numpy().clip(-1, 1)
        following, reward, terminated, truncated, info = envs.step(clipped)
        ended = terminated | truncated
        successor = following.copy()
        for i in np.flatnonzero(ended):
            successor[i] = info["final_obs"][i]
        for store, entry in zip(
            (seen, seen_next, actions, rewards, ends, stops),
            (obs, successor, action.numpy(), reward, ended, terminated),
            strict=True,
        ):
            store.append(entry)
        running += reward
        finished.extend(running[ended])
        running[ended] = 0.0
        obs = following
    s, s_next, a, r, end, stop = map(np.stack, (seen, seen_next, actions, rewards, ends, stops))

    # --- intrinsic reward, 2 of 3: score the batch and train on it
    flat = emi.Transitions(
        s.reshape(-1, obs_size),
        a.reshape(-1, action_size).clip(-1, 1),
        s_next.reshape(-1, obs_size),
        env_index=np.tile(np.arange(NUM_ENVS), LENGTH),
        ended=end.reshape(-1),
    )
    intrinsic, _ = emi.score_and_learn(bonus, flat)

    # --- intrinsic reward, 3 of 3: added before returns and advantages are computed
    r = r + options.eta * intrinsic.numpy().reshape(r.shape)

    # Generalised advantage estimates; the value after termination is 0.
    S, A = torch.as_tensor(s), torch.as_tensor(a)
    with torch.no_grad():
        v, v_next = value(S).numpy(), value(torch.as_tensor(s_next)).numpy()
        old = policy(S).log_prob(A).sum(-1)
    delta = r + DISCOUNT * v_next * ~stop - v
    advantage, trace = np.zeros_like(delta), np.zeros(NUM_ENVS)
    for t in reversed(range(LENGTH)):
        trace = delta[t] + DISCOUNT * LAMBDA * trace * ~end[t]
        advantage[t] = trace
    target = torch.as_tensor((advantage + v).astype(np.float32)).flatten()
    standard = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    gain = torch.as_tensor(standard.astype(np.float32)).flatten()
    S, A, old = S.flatten(0, 1), A.flatten(0, 1), old.flatten()

    for _ in range(EPOCHS):
        for rows in torch.randperm(len(S)).split(MINIBATCH):
            ratio = (policy(S[rows]).log_prob(A[rows]).sum(-1) - old[rows]).exp()
            better = torch.min(
                ratio * gain[rows], ratio.clamp(1 - CLIP, 1 + CLIP) * gain[rows]
            ).mean()
            loss = 0.5 * (value(S[rows]) - target[rows]).square().mean() - better
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(weights, 0.5)
            optimizer.step()

    steps, late = (iteration + 1) * NUM_ENVS * LENGTH, np.mean(finished[-20:] or [0.0])
    print(
        f"{steps:>8,} steps   return {late:7.1f}   bonus {intrinsic.mean():.3f}   "
        f"farthest {s[..., 0].max():+.2f} (the flag: +0.45)"
    )

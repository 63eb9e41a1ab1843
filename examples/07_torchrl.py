"""PPO of TorchRL with an intrinsic reward: one module between the collector and the advantages.

python examples/07_torchrl.py            # a minute
python examples/07_torchrl.py --eta 0    # without the bonus
"""

import argparse

import torch
from tensordict.nn import TensorDictModule
from tensordict.nn.distributions import NormalParamExtractor
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.data.replay_buffers.samplers import SamplerWithoutReplacement
from torchrl.envs import GymEnv, RewardSum, SerialEnv, TransformedEnv
from torchrl.modules import ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import emi
from emi.adapters import IntrinsicRewardModule, torchrl_spaces

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=16_384)
parser.add_argument("--eta", type=float, default=1.0)
options = parser.parse_args()

NUM_ENVS, BATCH, MINIBATCH, EPOCHS = 8, 2_048, 256, 5
torch.manual_seed(0)
torch.set_num_threads(1)  # the networks are small


def net(outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.LazyLinear(64), nn.Tanh(), nn.LazyLinear(64), nn.Tanh(), nn.LazyLinear(outputs)
    )


env = TransformedEnv(SerialEnv(NUM_ENVS, lambda: GymEnv("MountainCarContinuous-v0")), RewardSum())
env.set_seed(0)
observation_space, action_space = torchrl_spaces(env)
policy = ProbabilisticActor(
    TensorDictModule(
        nn.Sequential(net(2 * action_space.shape[0]), NormalParamExtractor()),
        in_keys=["observation"],
        out_keys=["loc", "scale"],
    ),
    in_keys=["loc", "scale"],
    distribution_class=TanhNormal,
    return_log_prob=True,
)
value = ValueOperator(net(1), in_keys=["observation"])
start = env.reset()
policy(start)  # creates the weights of the lazy layers
value(start)

advantage = GAE(gamma=0.99, lmbda=0.95, value_network=value, average_gae=True)
loss = ClipPPOLoss(policy, value)
optimizer = torch.optim.Adam(loss.parameters(), lr=3e-4)
collector = Collector(
    env,
    policy,
    frames_per_batch=BATCH,
    total_frames=options.steps,
    auto_register_policy_transforms=False,  # the policy has no memory
)
buffer = ReplayBuffer(
    storage=LazyTensorStorage(BATCH), sampler=SamplerWithoutReplacement(), batch_size=MINIBATCH
)

method = emi.RND(observation_space, action_space)
intrinsic = IntrinsicRewardModule(method, eta=options.eta, action_spec=env.action_spec)

returns: list[float] = []
for data in collector:
    intrinsic(data)  # once for each batch, before the advantages
    with torch.no_grad():
        advantage(data)
    buffer.extend(data.reshape(-1))
    for _ in range(EPOCHS):
        for _ in range(BATCH // MINIBATCH):
            losses = loss(buffer.sample())
            total = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
            optimizer.zero_grad()
            total.backward()
            nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
            optimizer.step()
    ended = data["next", "done"]
    returns += data["next", "episode_reward"][ended].tolist()  # without the bonus
    print(f"{intrinsic.steps:>8,} steps   bonus {intrinsic.scalars['intrinsic/bonus_mean']:.3f}")
collector.shutdown()

reached = sum(r > 0 for r in returns)
print(f"{reached} of {len(returns)} episodes reached the flag")

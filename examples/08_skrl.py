"""PPO of skrl with an intrinsic reward: one call between the agent and its trainer.

python examples/08_skrl.py            # half a minute
python examples/08_skrl.py --eta 0    # without the bonus
"""

import argparse

import gymnasium
import torch
from skrl import logger
from skrl.agents.torch.ppo import PPO
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import DeterministicMixin, GaussianMixin, Model
from skrl.trainers.torch import SequentialTrainer
from skrl.utils import set_seed
from torch import nn

import emi
from emi.adapters import add_intrinsic_reward

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=32_768)
parser.add_argument("--eta", type=float, default=1.0)
options = parser.parse_args()

NUM_ENVS, LENGTH = 8, 512
logger.setLevel("WARNING")
set_seed(0)
torch.set_num_threads(1)  # the networks are small
vector = gymnasium.make_vec(
    "MountainCarContinuous-v0",
    num_envs=NUM_ENVS,
    vectorization_mode="sync",
    vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP},
)
vector = gymnasium.wrappers.vector.RecordEpisodeStatistics(vector)
env = wrap_env(vector, wrapper="gymnasium", verbose=False)
spaces = {
    "observation_space": env.observation_space,
    "action_space": env.action_space,
    "device": env.device,
}


def net(outputs: int) -> nn.Sequential:
    size = env.observation_space.shape[0]
    return nn.Sequential(
        nn.Linear(size, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)
    )


class Policy(GaussianMixin, Model):
    def __init__(self) -> None:
        Model.__init__(self, **spaces)
        GaussianMixin.__init__(self, clip_actions=True)
        self.net = net(self.num_actions)
        self.log_std = nn.Parameter(torch.zeros(self.num_actions))

    def compute(self, inputs, role=""):
        return self.net(inputs["observations"]), {"log_std": self.log_std}


class Value(DeterministicMixin, Model):
    def __init__(self) -> None:
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self)
        self.net = net(1)

    def compute(self, inputs, role=""):
        return self.net(inputs["observations"]), {}


agent = PPO(
    models={"policy": Policy(), "value": Value()},
    memory=RandomMemory(memory_size=LENGTH, num_envs=NUM_ENVS, device=env.device),
    cfg={
        "rollouts": LENGTH,
        "learning_epochs": 10,
        "mini_batches": 16,
        "learning_rate": 3e-4,
        "time_limit_bootstrap": True,
        "experiment": {"write_interval": 0, "checkpoint_interval": 0},
    },
    **spaces,
)

method = emi.RND(env.observation_space, env.action_space)
intrinsic = add_intrinsic_reward(agent, env, method, eta=options.eta)
timesteps = options.steps // NUM_ENVS
SequentialTrainer(
    cfg={"timesteps": timesteps, "headless": True, "disable_progressbar": True},
    env=env,
    agents=agent,
).train()

returns = list(vector.return_queue)  # without the bonus
reached = sum(r > 0 for r in returns)
print(f"{intrinsic.steps:,} steps   bonus {intrinsic.scalars['intrinsic/bonus_mean']:.3f}")
print(f"{reached} of the last {len(returns)} episodes reached the flag")

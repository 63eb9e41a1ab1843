from emi.batch import Transitions as Transitions
from emi.envs import make_vec as make_vec
from emi.errors import UserError as UserError
from emi.images import stacked as stacked
from emi.intrinsic.contract import IntrinsicReward as IntrinsicReward
from emi.intrinsic.contract import score_and_learn as score_and_learn
from emi.intrinsic.diagnosis import diagnose as diagnose
from emi.intrinsic.emi import EMI as EMI
from emi.intrinsic.emi import EMIConfig as EMIConfig
from emi.intrinsic.ex2 import EX2 as EX2
from emi.intrinsic.ex2 import EX2Config as EX2Config
from emi.intrinsic.icm import ICM as ICM
from emi.intrinsic.icm import ICMConfig as ICMConfig
from emi.intrinsic.normalize_observation import NormalizeObservation as NormalizeObservation
from emi.intrinsic.normalize_reward import NormalizeReward as NormalizeReward
from emi.intrinsic.recipe import bonus as bonus
from emi.intrinsic.rnd import RND as RND
from emi.intrinsic.rnd import RNDConfig as RNDConfig
from emi.intrinsic.select_observation import SelectObservation as SelectObservation
from emi.intrinsic.simhash import SimHash as SimHash
from emi.intrinsic.simhash import SimHashConfig as SimHashConfig
from emi.intrinsic.vime import VIME as VIME
from emi.intrinsic.vime import VIMEConfig as VIMEConfig
from emi.intrinsic.weighted_sum import WeightedSum as WeightedSum
from emi.training.config import TrainConfig as TrainConfig
from emi.training.presets import preset as preset
from emi.training.trainer import train as train

__version__: str
__all__: list[str]

"""Train from Python: one report per iteration, and nothing is written to disk.

python examples/01_train.py            # about a minute; --steps 5000000 is the paper's run
"""

import argparse

import emi

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=30_000)
steps = parser.parse_args().steps

config = emi.preset("SparseHalfCheetah", "emi")
print(f"η = {config.eta}, {config.steps_per_iteration:,} steps per iteration\n")
print("steps   return   bonus   lower bounds of the mutual information, at most 1.39")
for report in emi.train("SparseHalfCheetah", method="emi", steps=steps, seed=0):
    m = report.metrics
    print(
        f"{report.steps:>6,}  {m['return_mean']:6.1f}  {m['bonus_mean']:6.3f}   "
        f"state {m['emi/bound_state']:.3f}, action {m['emi/bound_action']:.3f}"
    )

"""r1zero: reasoning models by reinforcement learning from verifiable rewards.

problem -> prompt -> rollout -> completion -> verdict -> reward -> advantage -> loss -> step -> checkpoint -> eval
"""

__version__ = "0.1.0"

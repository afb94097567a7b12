"""Importing this module registers every built-in verifier."""

from r1zero.verifiers import answer as answer
from r1zero.verifiers import choice as choice
from r1zero.verifiers import code as code
from r1zero.verifiers import equivalence_math_verify as equivalence_math_verify
from r1zero.verifiers import equivalence_sympy as equivalence_sympy
from r1zero.verifiers import gym as gym
from r1zero.verifiers import instructions as instructions
from r1zero.verifiers import json_schema as json_schema
from r1zero.verifiers import judge as judge
from r1zero.verifiers import language as language
from r1zero.verifiers import length as length
from r1zero.verifiers import math as math
from r1zero.verifiers import pattern as pattern
from r1zero.verifiers import repetition as repetition
from r1zero.verifiers import short_answers as short_answers
from r1zero.verifiers import tags as tags

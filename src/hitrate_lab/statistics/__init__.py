"""Tests and intervals for accuracies of methods that were tried on the same folds or data sets."""

from hitrate_lab.statistics.bayes import SignedRank, signed_rank
from hitrate_lab.statistics.conover import Conover, benjamini_hochberg, conover
from hitrate_lab.statistics.effects import Effect, Interval, paired_effect
from hitrate_lab.statistics.friedman import Friedman, friedman
from hitrate_lab.statistics.paired import Estimate, corrected_estimate, holm
from hitrate_lab.statistics.profiles import Profile, profiles
from hitrate_lab.statistics.rank_correlation import grouped_interval, spearman
from hitrate_lab.statistics.scores import mid_ranks

__all__ = [
    "Conover",
    "Effect",
    "Estimate",
    "Friedman",
    "Interval",
    "Profile",
    "SignedRank",
    "benjamini_hochberg",
    "conover",
    "corrected_estimate",
    "friedman",
    "grouped_interval",
    "holm",
    "mid_ranks",
    "paired_effect",
    "profiles",
    "signed_rank",
    "spearman",
]

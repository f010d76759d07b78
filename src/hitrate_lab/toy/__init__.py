"""The two toy problems of the EXACT paper, with every loss of the library.

    python -m hitrate_lab.toy --out build/toy

One feature, two classes, and f(x) = w x + c says +1 where it is not negative. Three studies:

1. f = x - b. Where is each loss least, and where does it lead when its noise falls as EXACT's does?
2. f = w x + c on points that no threshold separates: each loss chooses its own scale.
3. f = k (x - b), the first problem with a temperature: which losses now find a perfect threshold,
   and how large a temperature do they need?

Nothing is looked up: minima come from dense grids that are refined, trained models from gradient
descent. `docs/toy.md` holds the tables and what they say.

References
----------
"EXACT: How to Train Your Accuracy", Sections 3 and 4.5, Appendices D and E.
"""

"""A search over pipelines: whole pipelines and their input are drawn from a seed, and run in every
way there is."""

"""Pipelines in YAML and Python: read, filled in, checked, and turned into :class:`.PipelineSpec`.

docs/pipeline.md describes the language. ``loading`` finds the Python objects that a pipeline names.
"""

from millwheel.language.spec.parameters import resolve_params
from millwheel.language.spec.pipelines import check_pipeline, load_pipeline
from millwheel.language.spec.python_files import PipelineFile

__all__ = ["PipelineFile", "check_pipeline", "load_pipeline", "resolve_params"]

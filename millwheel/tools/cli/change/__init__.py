"""Commands that change a run: ranges, workers, savepoints, injected records, dead letters."""

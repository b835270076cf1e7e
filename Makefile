# Two commands on a fresh machine with git, make and Python 3.10 or newer: `make run` and `make test`.
# PYTHON=/path/to/python3 names the Python to use.
BIN := .venv/bin
READY := .venv/.ready
# Where it is set, each process of a run compiles all modules again that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-fast test-slow test-long test-search lint types package proto lock bench site clean

run: $(READY)
	$(BIN)/python examples/weblog/check.py

test: test-fast test-slow

# One more than there are cores: here and there a test waits.
JOBS := $(shell echo $$(($$(nproc) + 1)))
# Without a JVM. What measures ratios runs alone. In tests/slow all is slow. Columns have one thread, as in a worker: two take more CPU.
test-fast: $(READY)
	POLARS_MAX_THREADS=1 $(BIN)/python -m pytest -q -m "not slow" -n $(JOBS) --dist loadfile --ignore tests/guard --ignore tests/slow tests examples
	$(BIN)/python -m pytest -q -m "not slow" tests/guard

# The properties with new examples each time, for a quiet hour: what it finds becomes an example of its own.
test-search: $(READY)
	$(BIN)/python -m pytest -q -m "not slow" -n logical --dist loadfile --hypothesis-profile search --ignore tests/guard --ignore tests/slow tests examples

# Much of it waits: for JVMs, for sessions to expire, for disks. So more run side by side than there are cores, except for those that
# judge times; `make test-slow SIDE=1` for one after the other. Those that share a server or a run are a group, and run in one process.
SIDE := 3
# Where slow tests are; a test compares. The other folders take each process half a minute to look through.
SLOW := tests/slow tests/sim tests/search tests/contract tests/poison tests/unit/test_docs.py
test-slow: $(READY)
	$(BIN)/python -m pytest -q -m "slow and not alone and not long" -n $(SIDE) --dist loadgroup --no-loadscope-reorder $(SLOW)
	$(BIN)/python -m pytest -q -m "slow and alone" tests/slow

# More seeds, all deliberate mistakes, and kills in further places: before a release, and after a change of what they look at.
test-long: $(READY)
	$(BIN)/python -m pytest -q -m long -n $(SIDE) --dist worksteal $(SLOW)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# With two processes mypy now and then ends with an error of its own; what it says of the code, one says again.
types: $(READY)
	$(BIN)/mypy -n 2 || $(BIN)/mypy

# The package as one file, for `spark-submit --py-files build/millwheel.zip`.
package: $(READY)
	@mkdir -p build
	$(BIN)/python deploy/make_zip.py build/millwheel.zip

# A test says when this is due.
proto: $(READY)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m grpc_tools.protoc -Iproto --python_out=. --grpc_python_out=. --mypy_out=. --mypy_grpc_out=. proto/millwheel/adapters/pb/*.proto

lock: $(READY)
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-header --no-annotate --no-emit-index-url --python-version 3.10 pyproject.toml --all-extras --group dev -o requirements.lock

bench: $(READY)
	$(BIN)/python -m bench

# The docs site, as pages that can be opened from build/site.
site: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -f docs/site/mkdocs.yml

clean:
	rm -rf .venv build out .millwheel

# A changed lock file installs what has changed; anything else is quick.
$(READY): requirements.lock pyproject.toml .ci/environment
	@PYTHON="$(PYTHON)" .ci/environment

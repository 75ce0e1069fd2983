# make demo | make test are all a newcomer needs; both set up .venv by themselves.

PYTHON ?= python3
VENV := .venv
PEERS := .venv-peers
RUN := $(VENV)/bin

.PHONY: help install test test-slow browser demo bench bench-accuracy bench-five-minutes bench-explorer bench-duplicates study study-sequences study-captions study-settings study-texts docs docs-serve docs-generate dist lint format clean

help:
	@echo "make demo       see it work"
	@echo "make test       lint, type-check and test (make test-slow: the long tests too)"
	@echo "make bench      measure against other libraries; writes benchmarks/RESULTS.md"
	@echo "make study      measure the field's claims anew; writes studies/README.md"
	@echo "make docs       build the documentation in docs/_build/html (make docs-serve: and show it)"
	@echo "make dist       build wheel and source archive in dist/"
	@echo "make install    only set up $(VENV)"

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "likewise needs Python 3.11 or newer, got " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(RUN)/pip install --quiet -c constraints.txt -e '.[all,dev]'
	@touch $@

# Each test computes on one thread; files of tests are shared out to as many processes as there are cores.
test: lint browser
	$(RUN)/pytest -n auto --dist loadfile

test-slow: lint browser
	$(RUN)/pytest -n auto --dist loadfile -m ''

# The pages are tested in Chromium, which is installed where that is allowed.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium >/dev/null; } || \
	  echo "no Chromium here: the tests of pages are skipped"

lint: install
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

format: install
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .

demo: install
	$(RUN)/likewise demo

# The libraries we are measured against live in an environment of their own. Their torchvision
# is taken without its dependencies, so that the torch that is measured stays the tested one.
bench: $(PEERS)/installed
	$(PEERS)/bin/python -m benchmarks.losses
	$(PEERS)/bin/python -m benchmarks.augmentation
	$(PEERS)/bin/python -m benchmarks.training
	$(PEERS)/bin/python -m benchmarks.training memory
	$(PEERS)/bin/python -m benchmarks.step
	$(PEERS)/bin/python -m benchmarks.evaluation
	$(PEERS)/bin/python -m benchmarks.sequences
	$(PEERS)/bin/python -m benchmarks.captions
	$(PEERS)/bin/python -m benchmarks.embed
	$(PEERS)/bin/python -m benchmarks.embed memory
	$(PEERS)/bin/python -m benchmarks.search
	$(PEERS)/bin/python -m benchmarks.runtime threads
	$(PEERS)/bin/python -m benchmarks.runtime malloc

study: install
	rm -rf runs/studies
	$(RUN)/python -m studies.mutual_information
	$(RUN)/python -m studies.temperature
	$(RUN)/python -m studies.negatives
	$(RUN)/python -m studies.methods

# FSDD names an .npz with audio, offsets, rate, digit, speaker and is_test; HAR one with x, y and subject.
study-sequences: install
	$(RUN)/python -m studies.speech $(FSDD)
	$(RUN)/python -m studies.motion $(HAR)

# EMOJI names an .npz with x (n, vendors, h, w, 3), views and name; CLIPART one with x, title and keywords.
study-captions: install
	$(RUN)/python -m studies.captions $(EMOJI) $(CLIPART)

# CIFAR, FSDD and HAR are as above. Only parts of the training data are looked at.
study-settings: install
	$(RUN)/python -m studies.settings $(CIFAR) $(FSDD) $(HAR)

# PACKAGES names a Parquet file with title, text, section and is_test.
study-texts: install
	$(RUN)/python -m studies.texts $(PACKAGES)

# Nothing is fetched from a network. -W: a warning, such as a link that leads nowhere, fails the build.
docs: install
	$(RUN)/python -m sphinx -b html -W --keep-going -q docs docs/_build/html
	@echo "the documentation is in docs/_build/html/index.html"

docs-serve: docs
	@echo "the documentation is at http://127.0.0.1:8721/ (Ctrl-C ends it)"
	@$(RUN)/python -m http.server 8721 --bind 127.0.0.1 --directory docs/_build/html >/dev/null 2>&1

# The reference pages that follow from the code: recipe.md and commands.md.
docs-generate: install
	$(RUN)/python -m docs.generate

dist: install
	rm -rf dist
	$(RUN)/python -m build --no-isolation
	@ls dist

bench-explorer: install browser
	$(RUN)/python -m benchmarks.explorer

# CIFAR names an .npz with x_train, y_train, x_test and y_test.
bench-accuracy: $(PEERS)/installed
	$(PEERS)/bin/python -m benchmarks.time_to_accuracy $(CIFAR)

# FILES are options such as --data cifar10=cifar10_10k.npz --data fsdd=fsdd.npz,y=digit; without them, built-in data only.
bench-five-minutes: $(PEERS)/installed
	$(PEERS)/bin/python -m benchmarks.five_minutes $(FILES)

# DATA names an .npz with x, or x_train and x_test: images (n, h, w, 3) uint8, photos best.
bench-duplicates: install
	$(RUN)/python -m benchmarks.duplicates $(DATA)

$(PEERS)/installed: pyproject.toml constraints.txt benchmarks/peers.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet -c constraints.txt torch
	$(PEERS)/bin/pip install --quiet --no-deps torchvision
	$(PEERS)/bin/pip install --quiet -c constraints.txt -e '.[all]' -r benchmarks/peers.txt
	@touch $@

clean:
	rm -rf $(VENV) $(PEERS) dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis

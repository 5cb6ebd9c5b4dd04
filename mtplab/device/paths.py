"""Where things lie on the phone."""

from __future__ import annotations

TMP = "/data/local/tmp"
BENCHMARK_MODEL = f"{TMP}/benchmark_model"
BENCHMARK_LITERT_MODEL = f"{TMP}/benchmark_litert_model"
LITERT_LM = f"{TMP}/litert_lm_advanced_main"
TOKEN_RUNNER = f"{TMP}/mtplab-runner"
WORK_DIR = f"{TMP}/mtplab"
MODELS_DIR = f"{WORK_DIR}/models"
INPUTS_DIR = f"{WORK_DIR}/inputs"
BIN_DIR = f"{WORK_DIR}/bin"
DELEGATE_CACHE_DIR = f"{WORK_DIR}/delegate-cache"
OUTPUTS_DIR = f"{WORK_DIR}/outputs"

AICORE_PACKAGE = "com.google.android.aicore"

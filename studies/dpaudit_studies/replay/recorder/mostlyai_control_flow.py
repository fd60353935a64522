# dp-recorder on the engine's noisy counts: the categories that get noise.
from dp_recorder.auditing.audit_primitives import ensure_equality
from mostlyai.engine._encoding_types.tabular import categorical


def instrumented(pipeline):
    plain = categorical.dp_non_rare

    def dp_non_rare(value_counts, epsilon, threshold=5):
        ensure_equality(categories=sorted(value_counts))
        return plain(value_counts, epsilon, threshold)

    categorical.dp_non_rare = dp_non_rare
    return pipeline.run

# dp-recorder on Opacus: the batch size that the optimizer divides by.
from dp_recorder.auditing.audit_primitives import ensure_equality
from opacus import PrivacyEngine


def instrumented(pipeline):
    plain = PrivacyEngine._prepare_optimizer

    def _prepare_optimizer(self, *, optimizer, expected_batch_size, **more):
        ensure_equality(expected_batch_size=expected_batch_size)
        return plain(self, optimizer=optimizer, expected_batch_size=expected_batch_size, **more)

    PrivacyEngine._prepare_optimizer = _prepare_optimizer
    return pipeline.run

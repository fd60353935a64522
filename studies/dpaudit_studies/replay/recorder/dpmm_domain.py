# dp-recorder on dpmm: the domain that the mechanism takes from the data.
from dp_recorder.auditing.audit_primitives import ensure_equality
from dpmm.models.base.mechanisms import mechanism


def instrumented(pipeline):
    plain = mechanism.Domain

    def domain(attrs, shape):
        ensure_equality(_domain=[int(n) for n in shape])
        return plain(attrs, shape)

    mechanism.Domain = domain
    return pipeline.run

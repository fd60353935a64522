# dp-recorder on the two primitives of a numeric column, whose budgets are added up by hand: its
# own accounting takes a law for each primitive, not what a column was to spend in all.
import numpy as np
from dp_recorder.auditing.audit_primitives import audit_spec
from mostlyai.engine._encoding_types.tabular import numeric


def distance(a, b):
    return float(np.abs(np.asarray(a) - np.asarray(b)).sum())


def total(a, b):
    return float(sum(abs(a.get(key, 0) - b.get(key, 0)) for key in {*a, *b}))


def audited(plain, kind):
    @audit_spec(kind=kind, input_arg="values", sensitivity_arg="sensitivity", metric_fn=distance)
    def primitive(values, sensitivity, epsilon):
        return plain(values, epsilon)

    return lambda values, epsilon, **more: primitive(values, 1.0, epsilon)


def instrumented(pipeline):
    numeric.dp_approx_bounds = audited(numeric.dp_approx_bounds, "bounds")
    plain = numeric.dp_non_rare

    @audit_spec(kind="counts", input_arg="values", sensitivity_arg="sensitivity", metric_fn=total)
    def counts(values, sensitivity, epsilon):
        return plain(dict(values), epsilon, threshold=5)

    numeric.dp_non_rare = lambda values, epsilon, threshold: counts(dict(values), 1.0, epsilon)
    return pipeline.run


def more(auditor):
    spent = [e.params["epsilon"] for e in auditor.log if e.kind != "EQ"]
    return f"budget: {sum(spent)} of 1.0" if sum(spent) > 1.0 else ""

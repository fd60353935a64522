"""OpenDP 0.16.0: the Context API, a count and a sum of ages; (1, 0)-DP, one record more or less."""

import opendp.prelude as dp

dp.enable_features("contrib")


def run(data):
    """Two queries, an even share of ε = 1 for each."""
    context = dp.Context.compositor(
        data=[float(person["age"]) for person in data],
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=1.0),
        split_evenly_over=2,
        domain=dp.vector_domain(dp.atom_domain(T=float, nan=False)),
    )
    count = context.query().count().laplace().release()
    total = context.query().clamp((0.0, 100.0)).sum().laplace().release()
    return {"count": count, "total": total}

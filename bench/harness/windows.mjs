/**
 * How many windows of a sequence of turns hold exactly each tenant's weight. A window begins at every turn, not only at
 * every round: with weights 3, 2 and 1 any six turns in a row must be three, two and one.
 *
 * @param {string[]} turns                    tenants in the order they were served
 * @param {Record<string, number>} weights
 */
export function countExactWindows(turns, weights) {
  const size = Object.values(weights).reduce((sum, weight) => sum + weight, 0)
  const tenants = Object.keys(weights)
  const served = Object.fromEntries(tenants.map((tenant) => [tenant, 0]))
  let windows = 0
  let exact = 0
  for (const [n, tenant] of turns.entries()) {
    served[tenant] = (served[tenant] ?? 0) + 1
    if (n >= size) served[turns[n - size]] -= 1
    if (n < size - 1) continue
    windows += 1
    if (tenants.every((each) => served[each] === weights[each])) exact += 1
  }
  return { windows, exact }
}

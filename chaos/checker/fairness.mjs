/**
 * Bounded bypass, judged claim by claim in the server's order.
 *
 * A tenant is eligible while it has something waiting and a weight. A turn is up to as many items in a row as the weight says.
 *
 *   between two turns of a tenant    every other one that was eligible all the time got a whole turn of its own
 *   before its first turn            a tenant that became eligible beside W others sees at most W turns of others begin
 *   a claim                          gives nothing that does not wait, and no less than it could
 *
 * With a change of weights all counting begins anew.
 */

export function createFairness(names) {
  const count = names.length
  const numberOf = new Map(names.map((name, i) => [name, i]))
  const waiting = new Int32Array(count)
  const weight = new Int32Array(count).fill(1)
  const eligibleSince = new Float64Array(count).fill(-1)
  /** When each one's last turn began; what each other one was given since. */
  const lastTurn = new Float64Array(count).fill(-1)
  const since = new Int32Array(count * count)
  /** Turns of others that a tenant may still see before its first; -1 when it has had it. */
  const patience = new Int32Array(count).fill(-1)
  const found = []
  let now = 0
  let eligible = 0
  let all = 0
  let turns = 0
  let inTurn = -1
  let left = 0

  function look(tenant) {
    const isNow = waiting[tenant] > 0 && weight[tenant] > 0
    if (isNow === eligibleSince[tenant] >= 0) return false
    eligibleSince[tenant] = isNow ? now : -1
    eligible += isNow ? 1 : -1
    if (!isNow) patience[tenant] = -1
    if (!isNow && inTurn === tenant) inTurn = -1
    return isNow
  }

  function beginTurn(tenant) {
    turns += 1
    for (let other = 0; other < count; other += 1) {
      if (other === tenant) continue
      const wasThere = lastTurn[tenant] >= 0 && eligibleSince[other] >= 0 && eligibleSince[other] < lastTurn[tenant]
      const got = since[tenant * count + other]
      if (wasThere && got < weight[other])
        found.push(
          `claim ${now}: ${names[tenant]} had another turn while ${names[other]} (weight ${weight[other]}) was given ${got}`,
        )
      if (patience[other] === 0) found.push(`claim ${now}: ${names[other]} was passed over by ${names[tenant]}`)
      if (patience[other] >= 0) patience[other] -= 1
    }
    patience[tenant] = -1
    lastTurn[tenant] = now
    since.fill(0, tenant * count, (tenant + 1) * count)
    inTurn = tenant
    left = weight[tenant]
  }

  function give(tenant) {
    if (eligibleSince[tenant] < 0) found.push(`claim ${now}: ${names[tenant]} gave what it could not`)
    if (inTurn !== tenant || left === 0) beginTurn(tenant)
    left -= 1
    for (let other = 0; other < count; other += 1) since[other * count + tenant] += 1
    waiting[tenant] -= 1
    all -= 1
    look(tenant)
  }

  return {
    found,
    get turns() {
      return turns
    },
    /** `arrivals`: [tenant, items] of one step. */
    arrive(arrivals) {
      now += 1
      const fresh = []
      for (const [name, items] of arrivals) {
        const tenant = numberOf.get(name)
        waiting[tenant] += items
        all += items
        if (look(tenant)) fresh.push(tenant)
      }
      for (const tenant of fresh) patience[tenant] = eligible - 1
    },
    weigh(weights) {
      now += 1
      for (const [tenant, name] of names.entries()) {
        weight[tenant] = weights[name] ?? 1
        look(tenant)
        if (eligibleSince[tenant] >= 0) eligibleSince[tenant] = now
      }
      patience.fill(-1)
      lastTurn.fill(-1)
      since.fill(0)
      inTurn = -1
    },
    /** A claim of so many was given items of these tenants, in this order. Answers how many wait now. */
    claim(wanted, tenants) {
      for (const name of tenants) {
        now += 1
        give(numberOf.get(name))
      }
      if (tenants.length < wanted && eligible > 0)
        found.push(`claim ${now}: asked for ${wanted}, given ${tenants.length} while ${eligible} tenants could give`)
      return all
    },
  }
}

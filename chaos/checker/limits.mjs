/**
 * Limits of queues: what was held at any snapshot, counted from the leases themselves, and what was given in any time.
 *
 * A share is no limit of what is held but of what is given: a tenant may keep what it has when others drain or come, and may have all when
 * nobody else waits. claim gives a tenant no more than max(1, floor(maxShare × (held + wanted))) while another one in line is below its own.
 * So between two snapshots in which some tenant holds nothing and keeps its number in line, it could give and was given nothing all the
 * while, nobody is given anything that brings it above that: held + wanted are bounded by the cap, and by what was held at the first
 * snapshot, given since, and asked for.
 *
 * A rate of max per so many ms lets through max + max × time / ms in any time: that is one number that each gift moves on, and that time catches up
 * with.
 *
 * A claim that nobody saw answered may have been carried out: when it is repeated, it answers what it was given then, at a time that nobody
 * knows. Such gifts say nothing about a rate, and around such a claim only the cap bounds what a share is of.
 */
import { groupSorted } from './index.mjs'

const limitsOf = ({ options }) => options.limits ?? {}
const unsureOf = (of, { name }) => of('unsure').filter(({ queue }) => queue === name)
/** So long a call may have been on its way. */
const unseenUs = 2_000_000

/** Answers { looked, atCap, found }: caps, and counters that are not what the leases hold. */
export function findAboveCaps({ of }, { queues }) {
  const found = []
  let [looked, atCap] = [0, 0]
  for (const queue of queues) {
    const { inFlight = Number.POSITIVE_INFINITY, inFlightPerTenant = Number.POSITIVE_INFINITY } = limitsOf(queue)
    for (const snapshot of snapshotsOf(of, queue)) {
      const { perTenant, held } = snapshot
      looked += 1
      const most = Math.max(0, ...perTenant.values())
      if (held === inFlight || most === inFlightPerTenant) atCap += 1
      const at = `${queue.name} at ${snapshot.now}`
      if (held > inFlight) found.push(`${at}: ${held} are held, ${inFlight} may be`)
      for (const [tenant, n] of perTenant)
        if (n > inFlightPerTenant) found.push(`${at}: ${tenant} holds ${n}, ${inFlightPerTenant} it may`)
      if (held !== snapshot.counted) found.push(`${at}: ${held} are held, the store counts ${snapshot.counted}`)
      for (const [tenant, counted] of snapshot.tenants)
        if ((perTenant.get(tenant) ?? 0) !== counted)
          found.push(`${at}: ${tenant} holds ${perTenant.get(tenant) ?? 0}, its record counts ${counted}`)
    }
  }
  return { looked, atCap, found }
}

/** Answers { looked, found }: of one object at most one item is held. */
export function findHeldTogether({ of }, { queues }) {
  const objectOf = new Map(of('acked').map(({ id, tenant, key }) => [id, `${tenant}/${key}`]))
  const found = []
  let looked = 0
  for (const queue of queues)
    for (const { now, leases } of of('snapshot').filter((one) => one.queue === queue.name)) {
      const holders = new Map()
      for (const [id] of leases.flatMap(([, items]) => items)) {
        const object = objectOf.get(id) ?? id
        looked += 1
        if (holders.has(object))
          found.push(`${queue.name} at ${now}: of ${object} both ${holders.get(object)} and ${id} are held`)
        holders.set(object, id)
      }
    }
  return { looked, found }
}

/** Answers { looked, atShare, found }: gifts while another tenant waited with nothing. */
export function findAboveShare({ of }, { serverUs }, { queues }) {
  const found = []
  let [looked, atShare] = [0, 0]
  for (const queue of queues) {
    const { maxShare, inFlight = Number.POSITIVE_INFINITY } = limitsOf(queue)
    if (maxShare === undefined) continue
    const grants = of('granted').filter((one) => one.queue === queue.name)
    grants.sort((a, b) => a.now - b.now)
    let from = 0
    const unseen = unsureOf(of, queue).map(({ t }) => serverUs(t))
    const snapshots = snapshotsOf(of, queue)
    for (let i = 1; i < snapshots.length; i += 1) {
      const [before, after] = [snapshots[i - 1], snapshots[i]]
      while (from < grants.length && grants[from].now < Math.floor(before.now / 1000)) from += 1
      const waiting = whoWaited(before, after)
      if (waiting === undefined) continue
      const given = takeUntil(grants, from, after.now / 1000)
      const items = given.reduce((sum, { ids }) => sum + ids.length, 0)
      const wanted = Math.max(0, ...given.map((one) => one.wanted))
      const isSure = !unseen.some((at) => at >= before.now - unseenUs && at <= after.now)
      const slots = isSure ? Math.min(inFlight, before.held + items + wanted) : inFlight
      const most = Math.max(1, Math.floor(maxShare * slots))
      for (const tenant of newHolders(before, after)) {
        const holds = after.perTenant.get(tenant)
        looked += 1
        if (holds === most) atShare += 1
        if (holds > most)
          found.push(
            `${queue.name} at ${after.now}: ${tenant} was given more and holds ${holds}, ${most} it may while ${waiting} waits`,
          )
      }
    }
  }
  return { looked, atShare, found }
}

/** A tenant that held nothing, and was in line under the same number at both times: it was given nothing between them. */
function whoWaited(before, after) {
  const turns = new Map(after.line)
  const waited = before.line.find(
    ([tenant, turn]) => turns.get(tenant) === turn && !before.perTenant.has(tenant) && !after.perTenant.has(tenant),
  )
  return waited?.[0]
}

function newHolders(before, after) {
  const known = new Set(before.leases.map(([token]) => token))
  const fresh = after.leases.filter(([token]) => !known.has(token))
  return new Set(fresh.flatMap(([, items]) => items.map(([, tenant]) => tenant)))
}

function takeUntil(grants, from, now) {
  const some = []
  for (let i = from; i < grants.length && grants[i].now <= now; i += 1) some.push(grants[i])
  return some
}

/** Answers { looked, fullest, found }: gifts, and how much of a rate was used at most. */
export function findAboveRate({ of }, { queues }) {
  const tenantOf = new Map(of('acked').map(({ id, tenant }) => [id, tenant]))
  const result = { looked: 0, fullest: 0, found: [] }
  for (const queue of queues) {
    const { rate, ratePerTenant } = limitsOf(queue)
    const unsure = new Set(unsureOf(of, queue).map(({ token }) => token))
    const given = gifts(of('granted').filter((one) => one.queue === queue.name && !unsure.has(one.token)))
    result.looked += given.length
    if (rate) pace(queue.name, rate, given, result)
    if (!ratePerTenant) continue
    const perTenant = groupSorted(given, ({ id }) => tenantOf.get(id) ?? '', byNow)
    for (const [tenant, list] of perTenant) pace(`${queue.name} ${tenant}`, ratePerTenant, list, result)
  }
  return result
}

const byNow = (a, b) => a.now - b.now

/** Each once: a claim that is repeated gives nothing more. */
function gifts(granted) {
  const all = new Map()
  for (const { token, now, ids } of [...granted].sort(byNow))
    for (const id of ids) if (!all.has(`${token} ${id}`)) all.set(`${token} ${id}`, { id, now })
  return [...all.values()]
}

const roundingMs = 0.5

function pace(name, { max, per: perMs }, given, result) {
  let used = 0
  for (const { id, now } of given) {
    used = Math.max(used, now) + perMs / max
    result.fullest = Math.max(result.fullest, (used - now) / perMs)
    if (used - now > perMs + roundingMs)
      result.found.push(`${name}: ${id} was given at ${now}, more than ${max} per ${perMs} ms`)
  }
}

/** In the server's order, with what is held counted from the leases. */
function snapshotsOf(of, { name }) {
  const own = of('snapshot').filter(({ queue }) => queue === name)
  return own.sort(byNow).map((snapshot) => {
    const perTenant = new Map()
    for (const [, tenant] of snapshot.leases.flatMap(([, items]) => items))
      perTenant.set(tenant, (perTenant.get(tenant) ?? 0) + 1)
    return { ...snapshot, perTenant, held: [...perTenant.values()].reduce((sum, n) => sum + n, 0) }
  })
}

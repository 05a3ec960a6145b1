/**
 * All checks of a queues run in one table: what was looked for, among how many, and what was found. Pure: facts in, findings out.
 */
import { countCells, findEmptyCells, findIdleKills } from './cells.mjs'
import { groupSorted } from './index.mjs'
import { findReleases, readLeases, undoneUs } from './leases.mjs'
import {
  byRole,
  calledScript,
  emptyCells,
  expectedEvents,
  findLeftovers,
  findMissingEffects,
  findSurprises,
  findUnheld,
  findWrongStores,
  indexed,
  rowsOf,
  titleOf,
} from './queue-checks.mjs'

/**
 * `options`: { queues: [{ name, types }], handQueue, faultNames, phases, networkFaults, scripts, killName, restartName,
 * memoryName, redeliveryMs, isFull, leastClaims, leastKills }. Only a full run must fill every cell.
 */
export function checkQueues(facts, options) {
  const { faultNames, phases, networkFaults, scripts, killName, isFull, leastClaims, leastKills } = options
  const history = indexed(facts)
  const faults = history.of('fault')
  const leases = readLeases(history)
  const releases = findReleases(history, leases, options)
  const causes = new Map()
  for (const { cause, ...link } of releases.links) if (cause) add(causes, titleOf(cause, link, history, options))
  const cells = countCells(faults.map(byRole(killName)), rowsOf(faultNames, killName), phases)
  const network = countCells(
    history.of('network').map(({ fault, script }) => ({ fault: script, phase: fault })),
    scripts,
    networkFaults,
  )
  const kills = findIdleKills(faults, killName)
  const events = expectedEvents(history, options)
  const lost = findLost(history, leases, events, options)
  const stores = findWrongStores(history, events, lost.undone)
  const redelivery = findSlowRedeliveries(history, releases, leases, options)
  const order = findDisorder(history, leases, options)
  const fair = history.of('fair')
  const claims = fair.reduce((sum, one) => sum + one.claims, 0)
  const granted = history.of('granted').reduce((sum, { ids }) => sum + ids.length, 0)
  const checked = history.of('fsck')
  const drains = history.of('drained')
  const settled = history.of('settled')
  const checks = [
    {
      ...{ what: 'lost', among: events.total, of: 'items of acknowledged events and sends', found: lost.found },
      note: `${lost.dead} ended as dead letters, ${lost.discarded} of them given up, ${lost.popped} popped, ${lost.dropped} dropped for want of memory and counted; ${lost.undone.length} were a tail that Redis lost`,
    },
    { what: 'ghosts', among: history.of('refused').length, of: 'refused publishes', found: findGhosts(history) },
    { what: 'stores with a wrong count', among: stores.looked, of: 'looks at a store', found: stores.found },
    {
      ...{
        what: 'live leases beside another, or gifts after an ack',
        among: granted,
        of: 'items given',
        found: releases.found,
      },
      note: `${releases.links.length} given again, each with a cause`,
    },
    {
      ...{ what: 'handlings without a lease of their own', among: history.of('began').length, of: 'handlings' },
      found: findUnheld(leases),
    },
    {
      what: 'effects missing behind an ack',
      among: settled.length,
      of: 'settlements',
      found: findMissingEffects(leases, options),
    },
    {
      what: 'out of order',
      among: order.looked,
      of: 'first deliveries',
      found: order.found,
      note: `${order.excused} excused by a fault`,
    },
    {
      ...{ what: 'left by a claim after their lease had lapsed', found: redelivery.passedOver },
      ...{ among: redelivery.all.length, of: 'items of the killed' },
    },
    {
      ...{ what: `redeliveries above ${options.redeliveryMs} ms`, found: redelivery.found },
      ...{ among: redelivery.measured.length, of: 'of them for which a worker waited' },
    },
    {
      ...{ what: 'unfair', among: claims, of: 'claims', found: fair.flatMap(({ found }) => found) },
      note: `${count(sumOf(fair, 'items'))} items in ${count(sumOf(fair, 'turns'))} turns`,
    },
    {
      what: 'findings of fsck',
      among: checked.length,
      of: 'runs of it',
      found: checked.flatMap(({ findings }) => findings),
    },
    {
      ...{ what: 'failures', among: drains.length, of: 'times without memory', found: findBadDrains(drains) },
      note: `${sumOf(drains, 'refusals')} publishes and ${sumOf(drains, 'unsent')} sends refused, ${count(sumOf(drains, 'backlog'))} waiting items worked off`,
    },
    { what: 'leftovers', among: history.of('left').length, of: 'looks at what is left', found: findLeftovers(history) },
    {
      ...{ what: 'surprises', among: faults.length, of: 'faults', found: findSurprises(history, options) },
      note: `${history.of('missed').length} not struck as planned`,
    },
  ]
  const tooFew = [
    ...(claims < leastClaims ? [`only ${claims} claims were judged for fairness, ${leastClaims} are needed`] : []),
    ...(kills.kills < leastKills ? [`only ${kills.kills} processes were killed, ${leastKills} are needed`] : []),
  ]
  const coverage = isFull ? [...emptyCells(cells), ...findEmptyCells(network).map(calledScript), ...tooFew] : []
  const violations = [...checks.flatMap(({ found }) => found), ...coverage, ...kills.found]
  return {
    cells,
    network,
    checks,
    causes,
    redeliveries: redelivery.all,
    awaited: redelivery.measured,
    kills,
    joined: history.of('joined').length,
    violations,
  }
}

const count = (n) => n.toLocaleString('en-US')
const sumOf = (list, field) => list.reduce((sum, one) => sum + one[field], 0)
const add = (map, name) => void map.set(name, (map.get(name) ?? 0) + 1)

/**
 * Each item was acked, popped, given up by a discard, or is a dead letter still; or it was in a tail that Redis lost, or among those that the
 * store has counted as dropped, because Redis was full; or a pop whose answer nobody saw has taken it.
 */
function findLost({ of }, { items }, { byQueue }, { restartName, memoryName }) {
  const scarce = of('fault').filter(({ fault }) => fault === memoryName)
  const dead = new Set(of('dead').flatMap(({ queue, ids }) => ids.map((id) => `${queue} ${id}`)))
  const restarts = of('fault').filter(({ fault }) => fault === restartName)
  const found = []
  const undone = new Map()
  let [discarded, popped, dropped] = [0, 0, 0]
  for (const [queue, ids] of byQueue) {
    const missing = []
    for (const [id, event] of ids) {
      const item = items.get(`${queue} ${id}`)
      const isPopped = item?.grants.some(({ token }) => token === '')
      if (isPopped) popped += 1
      if (item?.isDiscarded) discarded += 1
      if (isPopped || item?.isDiscarded || dead.has(`${queue} ${id}`)) continue
      if (item?.settles.some(({ outcome, word }) => outcome === 'ack' && word !== 'stale')) continue
      missing.push(event)
    }
    const gone = new Set(missing.map(({ id }) => id))
    const kept = groupSorted(
      [...ids.values()].filter(({ id }) => !gone.has(id)),
      lineOf,
      byTime,
    )
    const couldBeDropped = missing.filter(({ t }) => scarce.some(({ until }) => t <= until))
    const isOfTail = (event) => isTail(event, restarts, kept.get(lineOf(event)) ?? [])
    const look = of('store').findLast((one) => one.queue === queue)
    const byMemory = new Set(couldBeDropped.sort((a, b) => isOfTail(a) - isOfTail(b)).slice(0, look?.dropped ?? 0))
    dropped += byMemory.size
    const others = missing.filter((event) => !byMemory.has(event))
    const pops = of('unsure').filter((one) => one.queue === queue && one.script === 'pop')
    const unseen = poppedUnseen(others, pops, isOfTail, (look?.entered ?? 0) - ids.size)
    popped += unseen.size
    for (const event of others) {
      if (unseen.has(event)) continue
      if (isOfTail(event)) undone.set(`${queue} ${event.id}`, { queue, t: event.t })
      else
        found.push(`${queue}: ${event.id} (${event.tenant ?? 'sent'} ${event.n ?? ''}) was acknowledged and never done`)
    }
  }
  return { found, dead: dead.size, discarded, popped, dropped, undone: [...undone.values()] }
}

/**
 * What pops without an answer may have taken: no more than they asked for, and of what Redis may have lost no more than the store counts
 * beyond the rest, the first of it. `surplus`: how many have entered, less those that were acknowledged.
 */
function poppedUnseen(missing, pops, isOfTail, surplus) {
  const most = sumOf(pops, 'wanted')
  const before = missing.filter(({ t }) => pops.some((pop) => t <= pop.t)).sort(byTime)
  const sure = before.filter((event) => !isOfTail(event)).slice(0, most)
  const entered = Math.max(0, surplus + missing.filter(isOfTail).length)
  return new Set([...sure, ...before.filter(isOfTail).slice(0, Math.min(entered, most - sure.length))])
}

const byTime = (a, b) => a.t - b.t
/** What is stored in one order: a partition of the log, or all that was sent. */
const lineOf = ({ id, tenant }) => (tenant === undefined ? 'sent' : id.split('-')[0])
const seqOf = ({ id, tenant, t }) => (tenant === undefined ? t : Number(id.split('-')[1]))

/** Whether a crash of Redis may have taken it: answered right before one, and nothing behind it that was answered before survived. */
function isTail(event, restarts, kept) {
  const crash = restarts.find((one) => event.t <= one.until && event.t >= one.t - undoneUs)
  return crash !== undefined && !kept.some((one) => seqOf(one) > seqOf(event) && one.t < crash.t)
}

/** What was refused was never handled. */
function findGhosts({ of }) {
  const refused = new Set(of('refused').map(({ tenant, n }) => `${tenant} ${n}`))
  const ghosts = new Set(
    of('began').flatMap(({ tenant, n }) => (refused.has(`${tenant} ${n}`) ? [`${tenant} ${n}`] : [])),
  )
  return [...ghosts].map((name) => `${name} was refused, and handled all the same`)
}

/** Per queue and tenant: first deliveries in the order in which the events were published. */
function findDisorder({ of }, { items, serverUs }, { queues, restartName, redeliveryMs }) {
  const numbers = new Map(of('acked').map(({ id, tenant, n }) => [id, { tenant, n }]))
  const unsure = of('unsure')
  const restarts = of('fault').filter(({ fault }) => fault === restartName)
  const names = new Set(queues.map(({ name }) => name))
  const firsts = []
  for (const { queue, id, grants } of items.values()) {
    const known = numbers.get(id)
    // One that was tried before was given by a claim whose answer nobody saw.
    if (names.has(queue) && known && grants[0]?.attempts === 0) firsts.push({ queue, id, ...known, ...grants[0] })
  }
  const inOrder = (a, b) => a.at - b.at || (a.token === b.token ? a.place - b.place : a.answeredAt - b.answeredAt)
  const found = []
  let excused = 0
  for (const [lane, list] of groupSorted(firsts, ({ queue, tenant }) => `${queue} ${tenant}`, inOrder)) {
    let highest = list[0]
    for (const one of list.slice(1)) {
      const isSure = one.at > highest.at || one.token === highest.token
      if (one.n < highest.n && isSure) {
        if (isExcused(one)) excused += 1
        else found.push(`${lane}: number ${one.n} (${one.id}) was given after number ${highest.n} (${highest.id})`)
      }
      if (one.n > highest.n) highest = one
    }
  }
  return { looked: firsts.length, found, excused }

  // A claim whose answer nobody saw had given it before, or Redis has forgotten that it did.
  function isExcused({ queue, at }) {
    const from = at - redeliveryMs * 1000 - undoneUs
    const near = (t) => serverUs(t) >= from && serverUs(t) <= at
    return (
      unsure.some((one) => one.queue === queue && near(one.t)) ||
      restarts.some(({ t, until }) => near(t) || near(until))
    )
  }
}

/**
 * What the killed held. By the server's order: once its lease has lapsed, no claim that brought everything back comes away with
 * less than it asked for and without the item. By time, from the kill, or from when the dead one's claim arrived, until it was given
 * to another: judged where a worker that lived on, and had its share of the machine, waited for work when the lease lapsed, and
 * nothing had struck Redis.
 */
function findSlowRedeliveries({ of }, { links }, { latestEndOf, serverUs }, { killName, redeliveryMs }) {
  const killsOf = new Map(
    of('fault')
      .filter(({ fault }) => fault === killName)
      .map((kill) => [kill.worker, kill]),
  )
  const late = of('late')
  const others = [...of('fault'), ...late].filter(({ worker }) => worker === undefined)
  const struck = groupSorted([...of('fault'), ...of('network'), ...late], ({ worker }) => worker, byTime)
  const shorts = groupSorted(
    of('short'),
    ({ queue }) => queue,
    (a, b) => a.now - b.now,
  )
  const grants = groupSorted(
    of('granted'),
    ({ queue }) => queue,
    (a, b) => a.now - b.now,
  )
  const unsure = groupSorted(of('unsure'), ({ token }) => token, byTime)
  const all = []
  const measured = []
  const found = []
  const passedOver = []
  for (const { queue, id, first, second, cause } of links) {
    const kill = killsOf.get(first.worker)
    if (!kill || (cause !== 'lapsed' && cause !== 'taken over')) continue
    // Another one had it meanwhile, by a claim whose answer nobody saw.
    if (!first.isExtension && second.attempts > first.attempts + 1) continue
    const from = Math.max(kill.t, first.t)
    const tookMs = (second.answeredAt - from) / 1000
    if (tookMs < 0) continue
    all.push(tookMs)
    const lapse = latestEndOf(queue, first.token) / 1000
    // It may have been given by a claim of that token whose answer nobody saw; what was seen is the repeat.
    const givenAt = Math.min(second.at, ...(unsure.get(second.token) ?? []).map(({ t }) => serverUs(t)))
    const near = between(shorts.get(queue) ?? [], lapse - waitingMs, givenAt / 1000 - 1)
    const empty = near.find(({ now, isAll, t }) => isAll && now > lapse + 1 && serverUs(t) / 1000 > lapse + 1)
    if (empty)
      passedOver.push(
        `${queue} ${id}: a claim of ${empty.worker} left it although the lease of ${first.worker} had lapsed`,
      )
    const isCalm = !others.some(({ t, until }) => t <= second.answeredAt && until >= from)
    // Who was killed is dead ever after.
    const isHit = ({ fault, t, until }) => t <= second.answeredAt && (fault === killName || until >= from)
    const lived = ({ worker }) => !(struck.get(worker) ?? []).some(isHit)
    // The last thing that it heard of this queue was that there is nothing.
    const waits = (one) =>
      one.now <= lapse &&
      lived(one) &&
      !between(grants.get(queue) ?? [], one.now + 1, lapse).some(({ worker }) => worker === one.worker)
    if (!isCalm || !near.some(waits)) continue
    measured.push(tookMs)
    if (tookMs > redeliveryMs)
      found.push(`${queue} ${id}: given again ${tookMs.toFixed(0)} ms after the kill of ${first.worker} only`)
  }
  return { all, measured, found, passedOver }
}

/** A worker that has nothing to do asks again within this time. */
const waitingMs = 1_200

/** Of a list that is sorted by `now`. */
function between(list, from, to) {
  let low = 0
  let high = list.length
  while (low < high) {
    const middle = (low + high) >> 1
    if (list[middle].now < from) low = middle + 1
    else high = middle
  }
  const some = []
  for (let i = low; i < list.length && list[i].now <= to; i += 1) some.push(list[i])
  return some
}

function findBadDrains(drains) {
  return drains.flatMap(({ refused, drained, backlog, tookMs }) => [
    ...(refused ? [] : ['without memory publishes and sends were not refused']),
    ...(drained
      ? []
      : [`without memory ${backlog} waiting items were not worked off in ${(tookMs / 1000).toFixed(0)} s`]),
  ])
}

/**
 * All checks of a run of ordered queues in one table: what was looked for, among how many, and what was found. Pure: facts in, findings
 * out. Order is judged in objects.mjs, limits in limits.mjs.
 */
import { countCells, findEmptyCells, findIdleKills } from './cells.mjs'
import { findReleases, readLeases } from './leases.mjs'
import { findAboveCaps, findAboveRate, findAboveShare, findHeldTogether } from './limits.mjs'
import { findOvertaking, judgeEffects, readObjects } from './objects.mjs'
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
 * `options`: { queues: [{ name, types, options }], handQueue, faultNames, phases, networkFaults, scripts, killName, stopName, isFull,
 * leastKills, leastStops }. Only a full run must fill every cell and strike so often.
 */
export function checkOrder(facts, options) {
  const history = indexed(facts)
  const leases = readLeases(history)
  const releases = findReleases(history, leases, options)
  const objects = readObjects(history, leases, options)
  const effects = judgeEffects(objects, leases)
  const checks = [
    ...checksOfOrder(history, { leases, releases, objects, effects }, options),
    ...checksOfLimits(history, leases, options),
    ...checksOfAll(history, options),
  ]
  const covered = coverage(history, options)
  const violations = [...checks.flatMap(({ found }) => found), ...covered.found]
  const causes = new Map()
  for (const { cause, ...link } of releases.links) {
    const title = cause && titleOf(cause, link, history, options)
    if (title) causes.set(title, (causes.get(title) ?? 0) + 1)
  }
  return { ...covered, checks, causes, effects, hand: handOf(history), joined: history.of('joined').length, violations }
}

function checksOfOrder(history, { leases, releases, objects, effects }, options) {
  const granted = history.of('granted').reduce((sum, { ids }) => sum + ids.length, 0)
  const ended = history.of('ended')
  const failed = ended.filter(({ how }) => how === 'failed').length
  const events = [...objects.values()].reduce((sum, { items }) => sum + items.length, 0)
  const overtaking = findOvertaking(history, objects, leases)
  const together = findHeldTogether(history, options)
  const { applied, duplicates, overtaken } = effects
  return [
    {
      ...{ what: 'effects out of order', among: applied, of: 'effects applied', found: effects.disorder },
      note: `${duplicates} duplicates and ${overtaken} that were given up before were refused`,
    },
    {
      ...{ what: 'without an effect', among: events, of: 'items of acknowledged events', found: effects.missing },
      note: `${failed} of ${ended.length} handlings failed`,
    },
    {
      ...{ what: 'given before the one before them was over', among: overtaking.looked, of: 'items of objects given' },
      found: overtaking.found,
    },
    {
      ...{ what: 'of one object held at once', among: together.looked, of: 'items seen held', found: together.found },
    },
    {
      ...{ what: 'live leases beside another, or gifts after an ack', among: granted, of: 'items given' },
      ...{ found: releases.found, note: `${releases.links.length} given again, each with a cause` },
    },
    {
      ...{ what: 'handlings without a lease of their own', among: history.of('began').length, of: 'handlings' },
      found: findUnheld(leases),
    },
    {
      ...{ what: 'effects missing behind an ack', among: history.of('settled').length, of: 'settlements' },
      found: findMissingEffects(leases, options),
    },
  ]
}

function checksOfLimits(history, leases, options) {
  const caps = findAboveCaps(history, options)
  const shares = findAboveShare(history, leases, options)
  const rates = findAboveRate(history, options)
  return [
    {
      ...{ what: 'above a cap, or miscounted', among: caps.looked, of: 'snapshots', found: caps.found },
      note: `${caps.atCap} at a cap`,
    },
    {
      ...{ what: 'above a share', among: shares.looked, of: 'tenants given more while another waited with nothing' },
      ...{ found: shares.found, note: `${shares.atShare} at their share` },
    },
    {
      ...{ what: 'above a rate', among: rates.looked, of: 'items given', found: rates.found },
      note: `${Math.round(100 * rates.fullest)} % of one was used at most`,
    },
  ]
}

function checksOfAll(history, options) {
  const stores = findWrongStores(history, expectedEvents(history, options), [])
  const checked = history.of('fsck')
  const faults = history.of('fault')
  const left = history.of('left')
  const findings = checked.flatMap((one) => one.findings)
  return [
    { what: 'stores with a wrong count', among: stores.looked, of: 'looks at a store', found: stores.found },
    { what: 'findings of fsck', among: checked.length, of: 'runs of it', found: findings },
    { what: 'leftovers', among: left.length, of: 'looks at what is left', found: findLeftovers(history) },
    {
      ...{ what: 'surprises', among: faults.length, of: 'faults', found: findSurprises(history, options) },
      note: `${history.of('missed').length} not struck as planned`,
    },
  ]
}

/** What was struck, and in a full run what should have been. */
function coverage(
  { of },
  { faultNames, phases, networkFaults, scripts, killName, stopName, isFull, leastKills, leastStops },
) {
  const faults = of('fault')
  const cells = countCells(faults.map(byRole(killName)), rowsOf(faultNames, killName), phases)
  const calls = of('network').map(({ fault, script }) => ({ fault: script, phase: fault }))
  const network = countCells(calls, scripts, networkFaults)
  const kills = findIdleKills(faults, killName)
  const stops = faults.filter(({ fault }) => fault === stopName).length
  const tooFew = [
    ...(kills.kills < leastKills ? [`only ${kills.kills} processes were killed, ${leastKills} are needed`] : []),
    ...(stops < leastStops ? [`only ${stops} processes were paused, ${leastStops} are needed`] : []),
  ]
  // The few kills of a quick run may happen to meet the idle.
  const missed = [...emptyCells(cells), ...findEmptyCells(network).map(calledScript), ...tooFew, ...kills.found]
  return { cells, network, kills, stops, found: isFull ? missed : [] }
}

/** What was done to parked objects and dead letters: { resumed, discarded, items, redriven }. */
function handOf({ of }) {
  const unparked = of('unparked')
  const discards = unparked.filter(({ act }) => act === 'discard')
  return {
    resumed: unparked.length - discards.length,
    discarded: discards.length,
    items: discards.reduce((sum, { items }) => sum + items, 0),
    redriven: of('redriven').reduce((sum, { ids }) => sum + ids.length, 0),
  }
}

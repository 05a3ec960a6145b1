/**
 * All checks of a webhooks run in one table: what was looked for, among how many, and what was found. Pure: facts in, findings out.
 *
 * What arrived is judged by what the receivers wrote down. A request is good when it was answered 2xx; who sent it is known by the port of its
 * connection.
 */
import { countCells, findEmptyCells, findIdleKills } from './cells.mjs'
import { groupSorted } from './index.mjs'
import { byRole, calledScript, findLeftovers, indexed, rowsOf } from './queue-checks.mjs'

const good = new Set(['200', '204', 'trickle'])
// The status ends it for whoever waits for it.
const ending = new Set([...good, '500'])

/**
 * `options`: { hooks: [{ name, types, parallel, isByHand }], sequenceOf(object, parallel), faultNames, phases, networkFaults, scripts, killName,
 * leaseMs, redeliveryMs, isFull, leastKills }. Only a full run must fill every cell, and kill so often in each phase that it asks for.
 */
export function checkWebhooks(facts, options) {
  const { faultNames, phases, networkFaults, scripts, killName, isFull, leastKills, redeliveryMs } = options
  const history = indexed(facts)
  const faults = history.of('fault')
  const cells = countCells(faults.map(byRole(killName)), rowsOf(faultNames, killName), phases)
  const network = countCells(
    history.of('network').map(({ fault, script }) => ({ fault: script, phase: fault })),
    scripts,
    networkFaults,
  )
  const kills = findIdleKills(faults, killName)
  const requests = readRequests(history)
  const acked = new Map(history.of('acked').map((one) => [one.id, one]))
  const lost = findLost(history, requests, acked, options)
  const order = findDisorder(requests, acked, options)
  const overlaps = findOverlaps(history, requests, acked, options)
  const repeats = findCauselessRepeats(history, requests, options)
  const redelivery = findSlowRedeliveries(history, options)
  const stores = findWrongStores(history, acked, options)
  const checked = history.of('fsck')
  const checks = [
    {
      ...{ what: 'lost', among: lost.among, of: 'events of webhooks', found: lost.found },
      note: `${lost.dead} are dead letters, ${lost.discarded} were given up`,
    },
    { what: 'never published', among: requests.length, of: 'requests', found: findStrangers(requests, acked) },
    { what: 'bodies or divisions that changed', among: requests.length, of: 'requests', found: findChanged(requests) },
    { what: 'out of order', among: order.among, of: 'events that arrived', found: order.found },
    {
      ...{ what: 'beside another of their sequence', among: requests.length, of: 'requests', found: overlaps.found },
      note: `${overlaps.explained} after a lapsed lease`,
    },
    {
      ...{ what: 'repeats without a cause', among: repeats.repeats, of: 'repeats', found: repeats.found },
      note: `${repeats.failed} after a failed attempt, ${repeats.explained} after a 2xx that nobody could tell of`,
    },
    {
      ...{
        what: `redeliveries above ${redeliveryMs} ms`,
        among: redelivery.measured.length,
        of: 'batches of the killed',
      },
      ...{ found: redelivery.found, note: `${redelivery.leftOut} met by something else left out` },
    },
    { what: 'webhooks with a wrong count', among: stores.looked, of: 'looks at a webhook', found: stores.found },
    {
      what: 'findings of fsck',
      among: checked.length,
      of: 'runs of it',
      found: checked.flatMap((one) => one.findings),
    },
    { what: 'left behind', among: history.of('left').length, of: 'looks', found: findLeftovers(history) },
    {
      ...{ what: 'surprises', among: faults.length, of: 'faults', found: findSurprises(history) },
      note: `${history.of('missed').length} not struck as planned`,
    },
  ]
  const coverage = isFull
    ? [
        ...findEmptyCells([...cells].filter(([fault]) => /^kill .* worker$/.test(fault))),
        ...findEmptyCells(network).map(calledScript),
        ...findFewKills(cells, killName, leastKills),
        ...kills.found,
      ]
    : []
  const violations = [...checks.flatMap(({ found }) => found), ...coverage]
  const joined = history.of('joined').length
  return { cells, network, checks, kills, joined, redeliveries: redelivery.measured, violations }
}

/** Each with its answer, its end and its sender; in the order in which they came. */
function readRequests({ of }) {
  const answers = new Map(of('answered').map((one) => [one.request, one]))
  const closes = new Map(of('closed').map((one) => [one.request, one]))
  const dialled = groupSorted(
    of('dialled'),
    ({ port }) => port,
    (a, b) => a.t - b.t,
  )
  return of('got')
    .map((one) => {
      const answer = answers.get(one.request)
      const closedAt = closes.get(one.request)?.t ?? Number.POSITIVE_INFINITY
      const endedAt = answer && ending.has(answer.how) ? answer.t : closedAt
      const sender = dialled.get(one.port)?.findLast(({ t }) => t <= one.t)?.worker
      return { ...one, isGood: good.has(answer?.how), endedAt, sender }
    })
    .sort((a, b) => a.t - b.t)
}

/** Every acknowledged event arrived in a good request of each webhook that it matches, or is a dead letter, or was given up by hand. */
function findLost({ of }, requests, acked, { hooks }) {
  const found = []
  const discarded = new Set(of('discarded').flatMap(({ ids }) => ids))
  let [among, dead, given] = [0, 0, 0]
  for (const { name, types, isByHand } of hooks) {
    const arrived = new Set(requests.filter((one) => one.hook === name && one.isGood).flatMap(({ ids }) => ids))
    const letters = new Set(of('letters').flatMap(({ hook, ids }) => (hook === name ? ids : [])))
    for (const { id, type } of acked.values()) {
      if (!types.includes(type)) continue
      among += 1
      if (arrived.has(id)) continue
      if (letters.has(id)) dead += 1
      else if (isByHand && discarded.has(id)) given += 1
      else found.push(`${name}: event ${id} never arrived`)
    }
  }
  return { among, found, dead, discarded: given }
}

const findStrangers = (requests, acked) =>
  requests.flatMap(({ hook, ids }) =>
    ids.filter((id) => !acked.has(id)).map((id) => `${hook}: event ${id} arrived but was never acknowledged`),
  )

/** A batch has one body for ever, and an event is in one batch of a webhook. */
function findChanged(requests) {
  const found = []
  const hashes = new Map()
  const batchOf = new Map()
  for (const { hook, batch, hash, ids } of requests) {
    const known = hashes.get(batch) ?? hash
    if (known !== hash) found.push(`${hook}: batch ${batch} was sent with another body`)
    hashes.set(batch, known)
    for (const id of ids) {
      const its = batchOf.get(`${hook} ${id}`) ?? batch
      if (its !== batch) found.push(`${hook}: event ${id} is in the batches ${its} and ${batch}`)
      batchOf.set(`${hook} ${id}`, its)
    }
  }
  return found
}

/**
 * Without repeats: all of a partition in order, or with several sequences all of an object. Letters that are put back in line go behind what waits, so
 * the webhook that people do things to is left out.
 */
function findDisorder(requests, acked, { hooks }) {
  const found = []
  let among = 0
  for (const { name, parallel, isByHand } of hooks) {
    if (isByHand) continue
    const seen = new Set()
    const last = new Map()
    for (const { hook, isGood, ids } of requests) {
      if (hook !== name || !isGood) continue
      for (const id of ids) {
        if (seen.has(id)) continue
        seen.add(id)
        among += 1
        const [partition, seq] = id.split('-').map(Number)
        const line = parallel > 1 ? objectOf(acked.get(id)) : partition
        if (seq < (last.get(line) ?? 0)) found.push(`${name}: event ${id} arrived after ${partition}-${last.get(line)}`)
        else last.set(line, seq)
      }
    }
  }
  return { among, found }
}

const objectOf = (event) => (event ? `${event.tenant}/${event.key}` : '')

/** At most one request of a sequence at a time, unless whoever sent the first has lost its lease. */
function findOverlaps(history, requests, acked, { hooks, sequenceOf, ...options }) {
  const parallel = new Map(hooks.map((hook) => [hook.name, hook.parallel]))
  const found = []
  let explained = 0
  const open = new Map()
  for (const request of requests) {
    const { hook, ids, t } = request
    const line = `${hook} ${parallel.has(hook) ? sequenceOf(objectOf(acked.get(ids[0])), parallel.get(hook)) : 0}`
    const others = (open.get(line) ?? []).filter(({ endedAt }) => endedAt > t)
    for (const other of others) {
      if (causeOf(history, other, t, options) || wasHeldUp(history, request, options)) explained += 1
      else found.push(`${hook}: ${request.batch} was sent while ${other.batch} was under way`)
    }
    open.set(line, [...others, request])
  }
  return { found, explained }
}

/** A batch that was taken is sent again only when nobody could tell. */
function findCauselessRepeats(history, requests, options) {
  const found = []
  let [repeats, failed, explained] = [0, 0, 0]
  const byHand = new Set(options.hooks.filter(({ isByHand }) => isByHand).map(({ name }) => name))
  for (const sent of groupSorted(
    requests,
    ({ batch }) => batch,
    (a, b) => a.t - b.t,
  ).values())
    for (let i = 1; i < sent.length; i += 1) {
      const [before, again] = [sent[i - 1], sent[i]]
      repeats += 1
      if (!before.isGood) failed += 1
      else if (causeOf(history, before, again.t, options) || wasHeldUp(history, again, options)) explained += 1
      else if (byHand.has(again.hook)) explained += 1
      else found.push(`${again.hook}: batch ${again.batch} was sent again although it was taken`)
    }
  return { repeats, failed, explained, found }
}

/** What kept a request's sender from settling or renewing until then: its end, or what held it up. */
function causeOf(history, request, to, options) {
  const isItsEnd = ({ fault, worker, t }) => fault === options.killName && worker === request.sender && t <= to
  return history.of('fault').some(isItsEnd) || wasHeldUp(history, request, options, to)
}

/** Its sender was struck, its calls were, Redis was, or the machine had no time: so long that its lease may have lapsed. */
function wasHeldUp({ of }, { sender, t: from }, { killName, leaseMs }, to = from) {
  const since = from - leaseMs * 1000
  const isNear = ({ t, until = t }) => t <= to && until >= since
  const isIts = ({ worker }) => worker === undefined || worker === sender
  return (
    of('fault').some((one) => one.fault !== killName && isIts(one) && isNear(one)) ||
    of('network').some((one) => one.worker === sender && isNear(one)) ||
    of('late').some((one) => isIts(one) && isNear(one))
  )
}

/** What the killed held is given to another one as soon as its lease has lapsed. */
function findSlowRedeliveries({ of }, { killName, redeliveryMs, leaseMs, hooks }) {
  const grants = new Map()
  for (const { batches, ...lease } of of('leased'))
    for (const batch of batches) grants.set(batch.id, [...(grants.get(batch.id) ?? []), { ...lease, ...batch }])
  const settles = groupSorted(
    of('settled').filter(({ word }) => word !== 'stale'),
    ({ id }) => id,
    (a, b) => a.t - b.t,
  )
  const byHand = new Set(hooks.filter(({ isByHand }) => isByHand).map(({ name }) => name))
  const postponed = groupSorted(
    of('settled').filter(({ outcome }) => outcome === 'throttle'),
    ({ id }) => grants.get(id)?.[0].hook,
    (a, b) => a.t - b.t,
  )
  const troubles = [...of('fault').filter(({ fault }) => fault !== killName), ...of('late')]
  const joined = of('joined').filter(({ role }) => role === 'worker')
  const deaths = of('fault').filter(({ fault }) => fault === killName)
  const measured = []
  const found = []
  let leftOut = 0
  for (const { worker, t: killedAt } of deaths.filter(({ role }) => role === 'worker'))
    for (const all of grants.values()) {
      const last = all.findLast((one) => one.worker === worker)
      if (!last) continue
      const isSettled = (settles.get(last.id) ?? []).some(
        ({ token, word }) => token === last.token && word !== undefined,
      )
      if (isSettled) continue
      const next = all.find((one) => one.t > last.t && one.token !== last.token)
      // Lost before the kill: that had another reason.
      if (next && next.answeredAt <= killedAt) continue
      const from = Math.max(killedAt, last.answeredAt ?? last.t)
      const to = next?.answeredAt ?? from + redeliveryMs * 1000 + 1
      const isTroubled = troubles.some(
        (one) => (!one.worker || one.worker === next?.worker) && one.t <= to && one.until >= from - leaseMs * 1000,
      )
      // All of the webhook waits then, whoever has its batches.
      const isPostponed = (postponed.get(last.hook) ?? []).some(({ t }) => t >= from - 3_000_000 && t <= to)
      // Somebody has to be there all the time.
      const isAttended = joined.some(
        (one) => one.t <= from && !deaths.some((death) => death.worker === one.worker && death.t <= to),
      )
      const wasSettledLate = (settles.get(last.id) ?? []).some(({ t }) => t >= last.t && t <= to)
      const isOther = byHand.has(last.hook) || !hooks.some(({ name }) => name === last.hook)
      if (isOther || isTroubled || isPostponed || !isAttended || wasSettledLate) {
        leftOut += 1
        continue
      }
      const tookMs = (to - from) / 1000
      measured.push(tookMs)
      if (tookMs > redeliveryMs)
        found.push(`${last.hook}: batch ${last.id} of ${worker} was given again only after ${tookMs.toFixed(0)} ms`)
    }
  return { measured, found, leftOut }
}

/** In every quiet moment each matching event has entered each webhook once, nothing waits, and the counts balance. */
function findWrongStores({ of }, acked, { hooks }) {
  const found = []
  const looks = of('store')
  for (const { t, hook, entered, delivered, dead, dropped, backlog } of looks) {
    const { types, isByHand } = hooks.find(({ name }) => name === hook)
    const expected = [...acked.values()].filter((one) => types.includes(one.type) && one.t <= t).length
    if (entered !== expected) found.push(`${hook}: ${entered} events have entered, ${expected} match`)
    if (backlog !== 0) found.push(`${hook}: ${backlog} events wait in a quiet moment`)
    const gone = delivered + dead + dropped
    // A letter that was put back in line counts as dead and as delivered.
    if (isByHand ? gone < entered : gone !== entered)
      found.push(`${hook}: ${entered} events have entered, ${gone} are accounted for`)
  }
  return { looked: looks.length, found }
}

function findFewKills(cells, killName, least) {
  return ['seal', 'lease', 'send', 'answered'].flatMap((phase) => {
    const hits = cells.get(`${killName} worker`)?.get(phase) ?? 0
    return hits < least ? [`only ${hits} kills met a dispatcher in phase "${phase}", ${least} are needed`] : []
  })
}

function findSurprises({ of }) {
  return [
    ...[...of('crashed'), ...of('unstarted')].map(
      ({ worker, code, signal }) => `${worker} ended by itself with ${signal ?? `exit ${code}`}`,
    ),
    ...of('stalled').map(({ what, tookMs }) => `${what}: not within ${(tookMs / 1000).toFixed(0)} s`),
    ...of('gap').map(({ worker, said }) => `${worker} was told of a gap in partition ${said}`),
    // One that is there for a moment only may be met by a router before it is made.
    ...of('remade')
      .filter(({ said }) => !said.startsWith('brief'))
      .map(({ worker, said }) => `${worker} had to make ${said} again`),
    ...of('stuck').map(({ worker, said }) => `${worker} was stuck: ${said}`),
    ...of('surprise').map(({ code }) => `by hand: ${code}`),
    ...of('refused').map(({ tenant, n, code }) => `the publish of ${tenant} ${n} ended with ${code}`),
  ]
}

/**
 * Does by hand what no worker does: sends, claims, extends, pops, looks, pauses, redrives, discards, and makes queues that it
 * takes away again. Prints "sent <µs> <queue> <id>", "unsent <µs> <queue> <code>" and "round <µs>" after each round. What fails
 * because of the network is left as it is: leases lapse. Hears on stdin:
 *
 *   rest   no more rounds; empties its own queue, prints "rested"
 *   go     on again
 *   check  fsck is one of the things to do from now on; what it finds is told: "finding <µs> <check> <where>"
 *   trust  not any more
 *
 * Arguments: URL of Redis, namespace, its own queue with its options as JSON, the queues of the workers separated by commas. Where these are
 * ordered, also the one that parks its objects, and how many tenants there are: then it lets parked objects go on, or gives them up, and
 * pauses tenants and queues. While it rests, every parked object goes on.
 */
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { busbar } from '../../dist/index.js'
import { nowUs } from '../harness/clock.mjs'

const [redis, namespace, own, others, parking, tenants] = process.argv.slice(2)
const { name, options } = JSON.parse(own)
const bus = busbar({ redis, namespace, publish: { timeout: '5m' } })
const hand = bus.queue(name, options)
const pick = (list) => list[Math.floor(Math.random() * list.length)]
const discardShare = 0.3
const pausedMs = 500
const say = (...fields) => void process.stdout.write(`${fields[0]} ${nowUs()} ${fields.slice(1).join(' ')}\n`)
const tries = async (act) => {
  try {
    return await act()
  } catch (error) {
    if (error.code && !mayHappen.has(error.code)) say('surprise', error.code)
    return undefined
  }
}
// A lost connection has no code of ours; a queue that another call has taken away is not found.
const mayHappen = new Set([
  ...['REDIS_UNAVAILABLE', 'QUEUE_NOT_FOUND', 'SUBSCRIPTION_NOT_FOUND', 'REDIS_OUT_OF_MEMORY', 'ECONNRESET'],
  ...['ECONNREFUSED', 'EPIPE', 'SUBSCRIPTION_CHANGED_ELSEWHERE'],
])

let briefs = 0
let sent = 0
let isResting = false
let isChecking = false

async function sendSome() {
  const ways = [{}, { delay: '100ms' }, { priority: 5 }, { priority: -5 }, { idempotencyKey: `key${sent}` }, {}]
  for (const way of ways) {
    sent += 1
    await tries(async () => {
      const object = options.ordered ? { key: `k${sent % 3}` } : {}
      const { id } = await hand.send({ n: sent }, { tenant: `h${sent % 7}`, ...object, ...way }).catch((error) => {
        say('unsent', name, error.code)
        throw error
      })
      say('sent', name, id)
    })
  }
}

async function claimSome() {
  const lease = await tries(() => hand.claim({ max: 6, wait: '50ms' }))
  const acts = [
    (item) => item.ack(),
    (item) => item.extend('2s').then(() => item.ack()),
    (item) => item.retry('20ms'),
    (item) => item.handBack(),
    (item) => item.dead('by hand'),
    (item) => item.extend(0),
  ]
  for (const [i, item] of (lease?.items ?? []).entries()) await tries(() => acts[(i + sent) % acts.length](item))
}

/** A queue that is there for a moment only, and takes what is published meanwhile. */
async function makeBrief() {
  briefs += 1
  const brief = bus.queue(`brief${briefs}`, { match: 'order.*', lease: '1s' })
  await tries(() => brief.send({ n: 0 }))
  await tries(() => brief.claim({ max: 2 }))
  for (let gone = false; !gone; ) {
    const left = await tries(() => bus.subscriptions.list())
    gone = left?.every((one) => one.name !== `brief${briefs}`) ?? false
    if (!gone) await tries(() => bus.queues.remove(`brief${briefs}`))
  }
}

/** Where nothing is parked, one that is not: the call is a call. */
async function tendParked() {
  const parked = (await tries(() => bus.queues.parked.list(parking))) ?? []
  const objects = parked.length > 0 ? parked.map(({ object }) => object) : ['t0/k0']
  for (const object of objects) {
    const isGivenUp = !isResting && Math.random() < discardShare
    await tries(() => bus.queues.parked[isGivenUp ? 'discard' : 'resume'](parking, object))
  }
}

/** One tenant, or all: then many wait at once, and limits bind. */
async function pauseWorkers() {
  const queue = pick(others.split(','))
  const whom = pick([{}, { tenant: `t${briefs % Number(tenants)}` }])
  await tries(() => bus.queues.pause(queue, whom))
  await sleep(pausedMs)
  await surely(() => bus.queues.resume(queue, whom))
}

async function surely(act) {
  for (let isDone = false; !isDone; )
    isDone = await tries(async () => {
      await act()
      return true
    })
}

async function checkAll() {
  await tries(async () => {
    for await (const { check, where, problem } of bus.fsck()) say('finding', check, where, problem)
  })
}

async function round() {
  await sendSome()
  await claimSome()
  await tries(() => hand.pop({ max: 2 }))
  await tries(() => bus.queues.peek(name))
  await tries(() => bus.queues.pause(name))
  await surely(() => bus.queues.resume(name))
  await tries(() => bus.queues.dead.redrive(name, { tenant: 'h1' }))
  await tries(() => bus.queues.dead.discard(name, { tenant: 'h2' }))
  const other = others.split(',')[briefs % others.split(',').length]
  // What was poison in an ordered queue has got over it by then.
  const redriven = parking ? 'poison' : 'bad luck'
  if (briefs % 10 === 0) await tries(() => bus.queues.dead.redrive(other, { reason: redriven }))
  if (briefs % 10 === 5) await tries(() => bus.queues.dead.discard(other, { reason: 'poison' }))
  if (parking) {
    await tries(() => bus.queues.dead[pick(['redrive', 'discard'])](name, 'all'))
    await tendParked()
    if (briefs % 2 === 0) await pauseWorkers()
  }
  await makeBrief()
  if (isChecking && briefs % 5 === 0) await checkAll()
  say('round')
}

/** Acks whatever is left, until nothing waits, is held or comes later. */
async function empty() {
  for (;;) {
    const facts = await tries(() => bus.queues.get(name))
    if (facts && facts.waiting + facts.held + facts.later === 0) return say('rested')
    const lease = await tries(() => hand.claim({ max: 100, wait: '100ms' }))
    await tries(() => lease?.ack())
  }
}

createInterface({ input: process.stdin })
  .on('line', (line) => {
    if (line === 'rest' || line === 'go') isResting = line === 'rest'
    if (line === 'check' || line === 'trust') isChecking = line === 'check'
  })
  .on('close', () => process.exit(0))
process.once('SIGTERM', () => process.exit(0))

say('ready')
for (;;) {
  if (isResting) {
    await empty()
    while (isResting) {
      if (parking) await tendParked()
      await sleep(20)
    }
  }
  await round()
  await sleep(20)
}

/**
 * A store of its own under a great many claims: tenants come and go, weights change, items go back or are tried again. All of it
 * goes over one connection, so that the order in which it is sent is the order in which Redis carries it out, and each answer
 * can be judged against what was known before it (checker/fairness.mjs).
 */
import { Redis } from 'ioredis'
import { acceptAct, claimAct, settleAct, workScript } from '../../dist/lanes/acts.js'
import { makeScript, removeScript } from '../../dist/lanes/scripts.js'
import { queueKeys } from '../../dist/redis/keys.js'
import { runScript } from '../../dist/redis/script.js'
import { createFairness } from '../checker/fairness.mjs'
import { nowUs } from './clock.mjs'
import { loopback } from './redis.mjs'

const namespace = 'chaos-fair'
const together = 200 // claims on their way at once
const mostHeld = 500
const leaseMs = 3_600_000 // nothing lapses: that would not be seen here

export async function claimFairly({ port, claims, tenants, random, report }) {
  const redis = new Redis({ host: loopback, port, replyMapping: 'legacy' })
  // One that Redis does not know is sent a second time, behind others.
  for (const { source } of [makeScript, workScript]) await redis.script('LOAD', source)
  const before = await sizeOf(redis)
  const keys = queueKeys(namespace, 'fair')
  const names = Array.from({ length: tenants }, (_, i) => `t${i}`)
  const fairness = createFairness(names)
  const run = (script, input) => runScript(redis, script, { keys, ...input })
  const does = async (act) => act.read((await run(workScript, { acts: [act] }))[0])
  let revision = 1
  let weights = {}

  // What was sent: its answers are judged in this order.
  let judging = Promise.resolve()
  const inOrder = (answer, judge) => {
    judging = judging.then(async () => judge(await answer))
  }
  const applied = [0]
  const define = () => {
    weights = Object.fromEntries(
      random
        .shuffled(names)
        .slice(0, Math.floor(tenants / 3))
        .map((name) => [name, random.between(0, 5)]),
    )
    revision += 1
    const now = weights
    inOrder(
      run(makeScript, {
        revision,
        born: 2,
        attempts: 0,
        ordered: false,
        parks: false,
        limits: {},
        applied,
        weights: now,
      }),
      (word) => {
        if (word !== 'made' && word !== 'raised') throw new Error(`make answered ${word}`)
        fairness.weigh(now)
      },
    )
  }

  let seq = 0
  const arrive = () => {
    const groups = []
    const first = seq + 1
    for (const lane of random.shuffled(names).slice(0, random.between(1, 20))) {
      // A few have a great deal, most a little.
      const size = random.float() < 0.1 ? random.between(10, 60) : random.between(1, 4)
      const items = Array.from({ length: size }, () => {
        seq += 1
        return `0-${seq} 0 ${lane} 0 0 ${seq} 0 \n{}`
      })
      groups.push({ lane, items })
    }
    const input = {
      ...{ revision, born: 2, partition: 0, first, last: seq },
      items: groups.flatMap(({ lane, items }) => items.map((item) => ({ lane, item }))),
    }
    owed += seq - first + 1
    inOrder(does(acceptAct(input)), ({ kind }) => {
      if (kind !== 'accepted') throw new Error(`accept answered ${kind}`)
      fairness.arrive(groups.map(({ lane, items }) => [lane, items.length]))
    })
  }

  let waiting = 0
  let owed = 0 // sent, not yet judged
  let made = 0
  let items = 0
  let held = []
  const claim = () => {
    made += 1
    const token = `k${made}`
    const n = random.float() < 0.8 ? 1 : random.between(2, 12)
    inOrder(does(claimAct({ token, n, leaseMs, worker: 'w', start: 's' })), (reply) => {
      const given = reply.items.map((text) => text.split(' ', 3))
      for (const [id, , lane] of given) held.push({ token, id, lane })
      items += given.length
      waiting = fairness.claim(
        n,
        given.map(([, , lane]) => lane),
      )
    })
  }

  /** Settles what is held: mostly acks; some go back to the head of their lanes, some to the end. */
  const settle = () => {
    const settlements = held.map(({ token, id, lane }) => ({ token, id, lane, outcome: outcomeOf(random.float()) }))
    held = []
    inOrder(does(settleAct(settlements)), ({ stale }) => {
      if (stale.length > 0) throw new Error(`${stale.length} settlements were stale`)
      fairness.arrive(settlements.filter(({ outcome }) => outcome.kind !== 'ack').map(({ lane }) => [lane, 1]))
    })
  }

  define()
  const began = nowUs()
  let told = began
  while (made < claims) {
    while (waiting + owed < tenants * 8) arrive()
    if (random.float() < 0.01) define()
    for (let i = 0; i < together; i += 1) {
      if (random.float() < 0.03) arrive()
      claim()
    }
    await judging
    owed = 0
    if (held.length > mostHeld) settle()
    if (nowUs() - told > 10_000_000) {
      told = nowUs()
      report(`${made.toLocaleString('en-US')} of ${claims.toLocaleString('en-US')} claims`)
    }
  }
  if (held.length > 0) settle()
  await judging
  const tookMs = (nowUs() - began) / 1000
  while ((await run(removeScript, { revision: revision + 1 })) === 'more');
  const after = await sizeOf(redis)
  redis.disconnect()
  return { claims: made, items, turns: fairness.turns, tookMs, before, after, found: fairness.found }
}

function outcomeOf(chance) {
  if (chance < 0.05) return { kind: 'back' }
  if (chance < 0.1) return { kind: 'retry', afterMs: 0, reason: 'again' }
  return { kind: 'ack' }
}

async function sizeOf(redis) {
  await redis.call('MEMORY', 'PURGE').catch(() => undefined)
  const used = Number(/used_memory:(\d+)/.exec(await redis.info('memory'))[1])
  return { keys: await redis.dbsize(), used }
}

/** Looks into the stores of queues in Redis, past every process, again and again: each look is one moment, for the checker. */
import { readLease, readRecord } from '../../dist/lanes/record.js'
import { queueKeys } from '../../dist/redis/keys.js'
import { nowUs } from './clock.mjs'

const everyMs = 20

const look = `
local reply = {redis.call('TIME'), redis.call('HGET', KEYS[1], 'held') or '0', redis.call('HGETALL', KEYS[2]),
  redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES')}
for _, token in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
  reply[#reply + 1] = token
  reply[#reply + 1] = redis.call('GET', ARGV[1] .. token) or ''
end
return reply`

/** Writes `snapshot` facts: { queue, now, counted, tenants, line, leases } (history.mjs). */
export function startSnapshots({ own, plan, queueNames, history }) {
  let isOver = false

  async function snapshot(queue) {
    const keys = queueKeys(plan.namespace, queue)
    const t = nowUs()
    const reply = await own.callBuffer(
      'EVAL',
      look,
      4,
      keys.store,
      keys.lanes,
      keys.turns,
      keys.leases,
      keys.heldPrefix,
    )
    history.add('snapshot', { t, answeredAt: nowUs(), queue, ...read(reply) })
  }

  const running = (async () => {
    while (!isOver) {
      // Redis is away: the next look tells.
      for (const queue of queueNames) await snapshot(queue).catch(() => {})
      await new Promise((resolve) => setTimeout(resolve, everyMs))
    }
  })()
  return {
    async stop() {
      isOver = true
      await running
    },
  }
}

function read([[seconds, micros], counted, lanes, line, ...leases]) {
  return {
    now: Number(seconds) * 1e6 + Number(micros),
    counted: Number(counted),
    tenants: pairs(lanes).map(([name, record]) => [String(name), readRecord(record).held]),
    line: pairs(line).map(([name, turn]) => [String(name), Number(turn)]),
    leases: pairs(leases).map(([token, lease]) => [
      String(token),
      readLease(lease).items.map(({ id, lane }) => [id, lane]),
    ]),
  }
}

const pairs = (list) => Array.from({ length: list.length / 2 }, (_, i) => [list[2 * i], list[2 * i + 1]])

/** Asks about operations all the while, as anyone may, and looks at all of them in the end: facts for the checker. */
import { operationKeys, queueKeys } from '../../dist/redis/keys.js'
import { nowUs } from './clock.mjs'

const everyMs = 10

/** Of one that says it runs: whether its lease is live, by the server's clock, at that moment. */
const look = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local reply = {tostring(now)}
local some = redis.call('HRANDFIELD', KEYS[1], 100, 'WITHVALUES')
for i = 1, #some, 2 do
  if string.byte(some[i + 1]) == 2 then
    local token = string.match(some[i + 1], '^%S+ ([^%s\\30]+)', 22)
    reply[#reply + 1] = some[i]
    reply[#reply + 1] = redis.call('ZSCORE', KEYS[2], token or '') or '0'
  end
end
return reply`

/** Writes `running` facts, { queue, now, operations: [name, lapses] }, and `asked` facts, { queue, id, status }. */
export function startAsking({ own, bus, plan, queueNames, history }) {
  let isOver = false
  const namespace = plan.namespace

  async function lookAt(queue) {
    const [now, ...pairs] = await own.eval(
      look,
      2,
      operationKeys(namespace, queue).ops,
      queueKeys(namespace, queue).leases,
    )
    const operations = pairs.flatMap((name, i) => (i % 2 === 0 ? [[name, Number(pairs[i + 1])]] : []))
    history.add('running', { t: nowUs(), queue, now: Number(now), operations })
  }

  async function ask(queue, id) {
    const t = nowUs()
    const operation = await bus.operations.get(`${queue}.${id}`).catch((error) => error)
    const status = operation.status && !operation.code ? operation.status : operation.code
    history.add('asked', { t, queue, id, status: status ?? 'away', attempts: operation.attempts })
  }

  const running = (async () => {
    for (let turn = 0; !isOver; turn += 1) {
      const acked = history.facts.filter(({ kind }) => kind === 'acked').slice(-200)
      const one = acked[(turn * 7) % Math.max(1, acked.length)]
      // Redis is away: the next look tells.
      for (const queue of queueNames) {
        await lookAt(queue).catch(() => {})
        if (one) await ask(queue, one.id)
      }
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

/** Writes an `operations` fact for each queue: { queue, track, records: [name, status, attempts], total, indexed }. */
export async function noteOperations({ own, bus, plan, queues, history }) {
  for (const { name: queue, options } of queues) {
    const keys = operationKeys(plan.namespace, queue)
    const records = []
    for (const name of await own.hkeys(keys.opItems)) {
      const { status, attempts } = await bus.operations.get(`${queue}.${name}`)
      records.push([name, status, attempts])
    }
    const last = (await own.hvals(keys.opsLast)).flatMap((entries) => entries.split('\n'))
    const indexed = (await own.zcard(keys.opsOf)) + last.length
    const { total } = await bus.operations.stats(queue)
    history.add('operations', { t: nowUs(), queue, track: options.track, records, total, indexed })
  }
}

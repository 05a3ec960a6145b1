/**
 * A running bus: a router, and as a worker also a dispatcher of all webhooks. Prints, each with µs, "ready", "dialled <port>" for every
 * connection to a receiver, by the port it has at this end, and "stuck <problem>". Hears on stdin:
 *
 *   block <ms>   be busy now
 *
 * It says "late <ms>" when its own loop was.
 *
 * Arguments: URL of Redis, namespace, 'worker' or 'router', timing of the group as JSON, lease in ms, by how many ms its wall clock is off, ports of
 * the receivers separated by commas.
 */
import { subscribe } from 'node:diagnostics_channel'
import { writeSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { nowUs } from '../harness/clock.mjs'

const [redis, namespace, role, group, lease, offMs, ports] = process.argv.slice(2)
const receivers = new Set(ports.split(',').map(Number))
const pulseMs = 100

// Before anything of the bus is loaded: all of it sees this time.
const realNow = Date.now
if (offMs !== '0') Date.now = () => realNow() + Number(offMs)
const { busbar } = await import('../../dist/index.js')

// Not process.stdout, which keeps lines back while its reader is slow: what was said before a SIGKILL must have been said.
const say = (kind, ...fields) => void writeSync(1, `${kind} ${nowUs()} ${fields.join(' ')}\n`)

subscribe('net.client.socket', ({ socket }) => {
  socket.prependOnceListener('connect', () => {
    if (receivers.has(socket.remotePort)) say('dialled', socket.localPort)
  })
})

const told = {
  'webhook.stuck': ({ shard, problem }) => say('stuck', `shard ${shard}: ${problem}`),
  'route.gap': ({ partition }) => say('gap', partition),
  'sink.remade': ({ subscription }) => say('remade', subscription),
}
const bus = busbar({
  ...{ redis, namespace, group: JSON.parse(group) },
  webhooks: {
    allow: ['127.0.0.0/8'],
    allowHttp: true,
    dispatch: role === 'worker',
    lease: Number(lease),
    concurrency: 16,
  },
  onTelemetry: ({ name: event, fields }) => told[event]?.(fields),
})

// A machine that has no time for it: what was late then says nothing about webhooks.
let pulse = nowUs()
setInterval(() => {
  const lateMs = Math.round((nowUs() - pulse) / 1000) - pulseMs
  pulse = nowUs()
  if (lateMs > pulseMs) say('late', lateMs)
}, pulseMs)

function block(ms) {
  const end = nowUs() + ms * 1000
  while (nowUs() < end);
}

createInterface({ input: process.stdin })
  .on('line', (line) => {
    const [act, ms] = line.split(' ')
    if (act === 'block') block(Number(ms))
  })
  // Nobody is left to listen.
  .on('close', () => process.exit(0))

await bus.run()
say('ready')

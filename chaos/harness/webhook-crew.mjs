/**
 * The processes of a webhooks run: dispatchers and routers, each with its own proxy, each watched line by line. Every place in the crew is filled
 * again when its process ends. One of the dispatchers has a wall clock that is a day off.
 *
 *   starting   the process is there, not yet ready
 *   ready      works, may be struck
 *   gone       its process has ended
 */
import { startActor } from './actor.mjs'
import { nowUs } from './clock.mjs'
import { closeSoon } from './proxies.mjs'
import { startScriptProxy } from './script-proxy.mjs'
import { hookFactsOf } from './webhook-facts.mjs'

export const phases = ['idle', 'seal', 'lease', 'send', 'answered', 'commit']
export const phaseTitles = {
  idle: 'idle',
  seal: 'in accept (seals)',
  lease: 'in claim (leases)',
  send: 'in mid-send',
  answered: '2xx, not settled',
  commit: "in router's commit",
}
/** A request is short, and one in two of those that wait for it misses it: that phase is looked for twice as often. */
export const phasesByRole = { worker: [...phases, 'send'], router: ['idle', 'seal', 'commit'] }
/** In these a call waits in the proxy while its sender is struck. */
const callOf = { seal: 'hook accept', lease: 'hook claim', answered: 'hook ack', commit: 'route commit' }
const dayMs = 86_400_000

/** `open`: request → { port, closedAt } of those that have no answer; closedAt: µs at which their connection ended. */
export function createWebhookCrew({ redis, namespace, group, leaseMs, receivers, open, history, network }) {
  const ports = receivers.map(({ port }) => port)
  const crew = new Map()
  let started = 0
  let isOver = false

  const startWatched = (name) =>
    startScriptProxy({
      redisPort: redis.port,
      answered: (call) => {
        network.seen(call.scripts)
        const { t, answeredAt } = call
        for (const [kind, fact] of hookFactsOf(call)) history.add(kind, { t, answeredAt, worker: name, ...fact })
      },
      faultOf: (scripts) => network.faultOf(scripts, name),
    })

  async function hire(place) {
    started += 1
    const name = `w${started}`
    const { role, offMs } = place
    const worker = { name, role, state: 'starting', ports: new Set(), callOf }
    worker.phasesOf = (aimed) => phasesOf(worker, open, aimed)
    // Most requests are answered before anyone hears of them.
    worker.approach = (phase) => {
      if (phase === 'send') for (const { actor } of receivers) actor.send('stall')
    }
    crew.set(name, worker)
    worker.proxy = await startWatched(name)
    const args = [worker.proxy.url, namespace, role, JSON.stringify(group), leaseMs, offMs, ports.join(',')]
    worker.actor = startActor('webhook-dispatcher.mjs', args.map(String), (words) => hear(worker, words))
    worker.actor.exited.then((exit) => {
      const before = worker.state
      worker.state = 'gone'
      crew.delete(name)
      if (!worker.call) closeSoon(worker)
      if (isOver) return
      if (exit.signal !== 'SIGKILL')
        history.add(before === 'starting' ? 'unstarted' : 'crashed', { t: nowUs(), worker: name, ...exit })
      void hire(place)
    })
  }

  function hear(worker, [kind, at, ...fields]) {
    const t = Number(at)
    const { name, role } = worker
    if (kind === 'ready') {
      if (worker.state === 'starting') worker.state = 'ready'
      history.add('joined', { t, worker: name, role })
    } else if (kind === 'dialled') {
      worker.ports.add(Number(fields[0]))
      history.add(kind, { t, worker: name, port: Number(fields[0]) })
    } else if (kind === 'late') history.add(kind, { t: t - Number(fields[0]) * 1000, until: t, worker: name })
    else history.add(kind, { t, worker: name, said: fields.join(' ') })
  }

  return {
    crew,
    startWatched,
    get ready() {
      return [...crew.values()].filter(({ state }) => state === 'ready')
    },
    async fill({ workers, routers }) {
      for (let i = 0; i < workers; i += 1) await hire({ role: 'worker', offMs: i === 0 ? dayMs : 0 })
      for (let i = 0; i < routers; i += 1) await hire({ role: 'router', offMs: 0 })
    },
    /** Ends all, in order, or by force after a while. */
    async end() {
      isOver = true
      const all = [...crew.values()]
      for (const { actor } of all) actor.kill('SIGTERM')
      const impatience = setTimeout(() => {
        for (const { actor, name } of all)
          if (crew.has(name)) {
            history.add('crashed', { t: nowUs(), worker: name, code: 'did not end' })
            actor.kill('SIGKILL')
          }
      }, 30_000)
      await Promise.all(all.map(({ actor }) => actor.exited))
      clearTimeout(impatience)
    },
  }
}

/** Of one that was killed: whether its end is what closed it. */
const isOpen = ({ closedAt }, { state }) =>
  closedAt === undefined || (state === 'gone' && nowUs() - closedAt < 1_000_000)

/** All phases that it is in; the one that was aimed at first. */
function phasesOf(worker, open, aimed) {
  const found = new Set()
  for (const [phase, script] of Object.entries(callOf))
    if (worker.call?.phase === phase || worker.proxy.isCalling(script)) found.add(phase)
  for (const request of open.values()) if (worker.ports.has(request.port) && isOpen(request, worker)) found.add('send')
  if (found.size === 0) found.add('idle')
  return found.has(aimed) ? [aimed, ...[...found].filter((phase) => phase !== aimed)] : [...found]
}

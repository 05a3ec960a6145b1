/**
 * The processes of a queues run: workers and routers, each with its own proxy, each watched line by line. Every place in the
 * crew is filled again when its process ends; half of the workers come back under the name that they had.
 *
 *   starting   the process is there, not yet ready
 *   ready      works, may be struck
 *   gone       its process has ended
 */
import { startActor } from './actor.mjs'
import { nowUs } from './clock.mjs'
import { closeSoon } from './proxies.mjs'
import { factsOf } from './queue-facts.mjs'
import { startScriptProxy } from './script-proxy.mjs'

export const phases = ['idle', 'claim', 'claimed', 'handler', 'settle', 'route', 'commit']
/** What each role can be struck in. */
export const phasesByRole = { worker: phases, router: ['idle', 'route', 'commit'] }
export const phaseTitles = {
  idle: 'idle',
  claim: 'in claim',
  claimed: 'claimed, not begun',
  handler: 'in handler',
  settle: 'in settle',
  route: 'in accept',
  commit: "in router's commit",
}
/** In these a call waits in the proxy while its sender is struck. */
const callOf = { claim: 'claim', settle: 'settle', route: 'accept', commit: 'route commit' }

export function createQueueCrew({ redis, namespace, group, queues, history, network }) {
  const crew = new Map()
  let started = 0
  let isOver = false

  async function startWatched(name, extra) {
    const proxy = await startScriptProxy({
      redisPort: redis.port,
      answered: (call) => note(name, extra, call),
      faultOf: (scripts) => network.faultOf(scripts, name),
    })
    return proxy
  }

  function note(name, { busName, worker }, call) {
    const { t, answeredAt } = call
    network.seen(call.scripts)
    for (const [kind, fact] of factsOf(call)) {
      history.add(kind, { t, answeredAt, worker: name, busName, ...fact })
      if (kind === 'granted') for (const id of fact.ids) given(worker, `${fact.queue} ${id}`)
      if (kind === 'settled') worker?.claimed.delete(`${fact.queue} ${fact.id}`)
    }
  }

  /** Whoever had it before has lost it. */
  function given(worker, key) {
    for (const other of crew.values()) other.claimed.delete(key)
    worker?.claimed.add(key)
  }

  async function hire(place) {
    started += 1
    const name = `w${started}`
    const { role, busName = '-' } = place
    const worker = { name, role, place, state: 'starting', claimed: new Set(), inHand: new Set(), callOf }
    worker.phasesOf = (aimed) => phasesOf(worker, aimed)
    crew.set(name, worker)
    worker.proxy = await startWatched(name, { busName, worker })
    const args = [worker.proxy.url, namespace, busName, role, JSON.stringify(group), JSON.stringify(queues)]
    worker.actor = startActor('queue-worker.mjs', args, (words) => hear(worker, words))
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
    const [queue, id] = fields
    const key = `${queue} ${id}`
    if (kind === 'ready') {
      if (worker.state === 'starting') worker.state = 'ready'
      history.add('joined', { t, worker: worker.name, role: worker.role })
    } else if (kind === 'began') {
      worker.claimed.delete(key)
      worker.inHand.add(key)
      const [attempt, tenant, n] = fields.slice(2)
      history.add(kind, { t, worker: worker.name, queue, id, attempt: Number(attempt), tenant, n: Number(n) })
    } else if (kind === 'ended') {
      worker.inHand.delete(key)
      history.add(kind, { t, worker: worker.name, queue, id, how: fields[2] })
    } else if (kind === 'late') history.add(kind, { t: t - Number(fields[0]) * 1000, until: t, worker: worker.name })
    else history.add(kind, { t, worker: worker.name, said: fields.join(' ') })
  }

  return {
    crew,
    startWatched,
    get ready() {
      return [...crew.values()].filter(({ state }) => state === 'ready')
    },
    async fill({ workers, routers }) {
      for (let i = 0; i < workers; i += 1) await hire({ role: 'worker', ...(i % 2 === 0 ? { busName: `n${i}` } : {}) })
      for (let i = 0; i < routers; i += 1) await hire({ role: 'router' })
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
      }, 20_000)
      await Promise.all(all.map(({ actor }) => actor.exited))
      clearTimeout(impatience)
    },
  }
}

/** All phases that it is in; the one that was aimed at first. */
function phasesOf(worker, aimed) {
  const found = new Set()
  for (const [phase, script] of Object.entries(callOf))
    if (worker.call?.phase === phase || worker.proxy.isCalling(script)) found.add(phase)
  if (worker.inHand.size > 0) found.add('handler')
  if (worker.claimed.size > 0) found.add('claimed')
  if (found.size === 0) found.add('idle')
  return found.has(aimed) ? [aimed, ...[...found].filter((phase) => phase !== aimed)] : [...found]
}

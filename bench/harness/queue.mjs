/** The Busbar queue of the bench: its definitions, the same in every process that touches it, and what is left in it. */
import { leaseMs, retryMs } from './luck.mjs'

export const queueName = 'bench'
export const definition = { match: 'order.*', lease: '30s' }
export const ordered = { ...definition, ordered: true }
export const tracked = { ...definition, track: true }
/** Every limit there is, and none that anybody reaches. */
export const limited = {
  ...definition,
  limits: {
    ...{ inFlight: 100_000, inFlightPerTenant: 10_000, maxShare: 0.9 },
    ...{ rate: { max: 1_000_000, per: '1s' }, ratePerTenant: { max: 100_000, per: '1s' } },
    ...{ backlog: 1_000_000, overflow: 'hold' },
  },
}

/** For workers that are killed, and handlers that fail. */
export const struck = {
  ...ordered,
  lease: leaseMs,
  retry: { attempts: Number.POSITIVE_INFINITY, backoff: [retryMs, retryMs] },
}

/** Items that wait, behind others or not, or are held. */
export async function left(bus) {
  const { waiting, behind, later, held } = await bus.queues.get(queueName)
  return waiting + behind + later + held
}

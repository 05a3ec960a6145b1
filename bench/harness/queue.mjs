/** The Busbar queue of the bench: its definition, the same in every process that touches it, and what is left in it. */

export const queueName = 'bench'
export const definition = { match: 'order.*', lease: '30s' }

/** Items that wait or are held. */
export async function left(bus) {
  const { waiting, later, held } = await bus.queues.get(queueName)
  return waiting + later + held
}

/** The acts of work.lua, each alone in its call. */
import {
  type Accept,
  type Act,
  acceptAct,
  type Claim,
  claimAct,
  readAccepted,
  readClaimed,
  readSettled,
  type Settlement,
  settleAct,
  workScript,
} from '../../src/lanes/acts.ts'
import type { StoreInput } from '../../src/lanes/scripts.ts'
import type { Script } from '../../src/redis/script.ts'

function alone<Input, Raw, Reply>(act: (input: Input) => Act<Reply>, read: (raw: Raw) => Reply) {
  const script: Script<StoreInput & Input, Reply> = {
    ...workScript,
    keys: (input) => workScript.keys({ ...input, acts: [] }),
    writtenKeys: (input) => workScript.writtenKeys({ ...input, acts: [] }),
    args: (input) => workScript.args({ ...input, acts: [act(input)] }),
    reply: ([raw]: Raw[]) => read(raw!),
  }
  return script
}

export const acceptScript = alone((accept: Accept) => acceptAct(accept), readAccepted)
export const claimScript = alone((claim: Claim) => claimAct(claim), readClaimed)
export const settleScript = alone(
  (said: { settlements: readonly Settlement[] }) => settleAct(said.settlements),
  readSettled,
)
